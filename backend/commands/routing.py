"""Commands that send work to an API and back: `route` and `probe`."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence
from typing import Final

from backend.commands.speaking import say
from backend.commands.steering import ask_supervisor, find, who
from backend.config import load
from backend.control import ControlError
from backend.control.intents import current_setting, want_probe, want_route
from backend.heartbeat import SupervisorState, supervisor_state
from backend.probes import read_probes
from backend.records import DatasetState
from backend.report.formatting import plain
from backend.report.probe_price import probe_price
from backend.report.spend_bounds import spend_bound_warnings
from backend.report.status import read_status
from backend.run_dir import RunDir
from backend.runs import command_name

PROBE_POLL_S: Final = 0.5
TOLD_WITHIN_S: Final = 5.0  # by an event, which later ones may push out of sight
ENDED: Final = (DatasetState.DONE, DatasetState.KILLED, DatasetState.FAILED)
NOT_BEGUN: Final = (DatasetState.WAITING, None)


def route(options: argparse.Namespace) -> int:
    """Asks that new requests of datasets go somewhere else."""
    run = find(options)
    *named, to = options.to
    datasets = _chosen(run, options, named)
    codes = [ask_supervisor(run, want_route(run, dataset, to, who()), options) for dataset in datasets]
    if to != "local":
        for words in _cannot_be_sent(run, datasets, to.removeprefix("both:")):
            say(f"Mind: {words}")
    return max(codes)


def _cannot_be_sent(run: RunDir, datasets: Sequence[str], api: str) -> list[str]:
    """Why nothing of these datasets will be sent to an API, by their caps as they are now."""
    settings = load(run.config)
    seen = read_status(run, time.time(), counted=False, settings=settings).datasets
    caps_tokens = {dataset.name: dataset.max_new_tokens for dataset in seen if dataset.name in datasets}
    cap_usd = current_setting(run, f"api.{api}.spend_cap_usd")
    return spend_bound_warnings(settings, command_name(run), caps_tokens, {api: cap_usd})


def probe(options: argparse.Namespace) -> int:
    """Shows what it may cost, asks, and waits for what it tells."""
    run = find(options)
    price = probe_price(run, options.api, options.prompts, options.cap_usd)
    if price.worst_usd is None:
        raise ControlError(price.words)
    say(price.words)
    if not options.yes:
        if not sys.stdin.isatty():
            raise ControlError("Nobody can be asked here: give --yes to agree.")
        if input("Send them? [y/N] ").strip().lower() not in ("y", "yes"):
            say("Nothing was sent.")
            return 0
    began_at = time.time()
    code = ask_supervisor(run, want_probe(run, options.api, options.prompts, options.cap_usd, who()), options)
    if code != 0 or options.no_wait or supervisor_state(run, time.time()) is not SupervisorState.ALIVE:
        return code
    say("Its answers are kept as samples. Waiting for them (Ctrl-C leaves it at work) …")
    while supervisor_state(run, time.time()) in (SupervisorState.ALIVE, SupervisorState.NOT_ANSWERING):
        told = [e.message for e in read_status(run, time.time()).events if e.kind == "api.probed" and e.at >= began_at]
        found = read_probes(run).get(options.api)
        if told or (found is not None and began_at <= found.at < time.time() - TOLD_WITHIN_S):
            say(plain(told[-1]) if told else f"{options.api} was probed: see the page Compare.")
            return 0
        time.sleep(PROBE_POLL_S)
    raise ControlError("The supervisor has left before the probe was through; the answers that came are kept.")


def _chosen(run: RunDir, options: argparse.Namespace, named: Sequence[str]) -> Sequence[str]:
    if len(named) + options.waiting + options.all != 1:
        raise ControlError(
            f"Name one dataset, or give --waiting or --all: python -m backend route {command_name(run)} DATASET local|API"
        )
    if named:
        return named
    view = read_status(run, time.time())
    chosen = [d.name for d in view.datasets if (d.state in NOT_BEGUN if options.waiting else d.state not in ENDED)]
    if not chosen:
        raise ControlError(
            f"{run.name} has no dataset that {'waits for its turn' if options.waiting else 'is not at its end'}."
        )
    return chosen
