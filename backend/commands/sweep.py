"""`sweep`: measures a run's speed at several concurrencies, and tells the knee and which of them ends the run soonest.

Ctrl-C cancels the sweep, never the run.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path
from typing import Final

from backend.commands.speaking import complain, say
from backend.commands.steering import ANSWER_TIMEOUT_S, who
from backend.config import load
from backend.control import ControlError
from backend.control.intents import await_answer, want_measured_sweep, want_no_sweep, want_sweep
from backend.control.serving_benchmark import read_benchmark
from backend.heartbeat import SupervisorState, supervisor_state
from backend.records import Intent
from backend.report.formatting import table
from backend.report.status import read_status, to_json
from backend.report.sweep import (
    HEAD,
    SweepView,
    curve_sentences,
    level_rows,
    progress_sentence,
    read_sweep,
    sweep_sentence,
)
from backend.report.sweep_json import to_dict
from backend.run_dir import RunDir
from backend.runs import command_name, find_run, runs_folder
from backend.sweeps import Sweep, SweepState, sweeps_of

POLL_S: Final = 0.5
BEGIN_TIMEOUT_S: Final = 10.0  # between the answer to a wish and the sweep's first row


def sweep(options: argparse.Namespace) -> int:
    """Sweeps, reads a file's levels, or shows what the last sweep came to."""
    run = find_run(options.run, runs_folder())
    if options.concurrency is not None and options.file is not None:
        raise ControlError("--concurrency measures, --import reads what was measured: name one of them.")
    if options.file is not None:
        value = read_benchmark(Path(options.file), options.replicas)
        return _ask(run, want_measured_sweep(run, value, who())) or _show(run, options)
    if options.concurrency is not None:
        return _measure(run, options)
    return _show(run, options)


def _measure(run: RunDir, options: argparse.Namespace) -> int:
    if supervisor_state(run, time.time()) is not SupervisorState.ALIVE:
        raise ControlError(
            f"{run.name} is not running, and a sweep measures a server at work. Start it with: "
            f"python -m backend start {command_name(run)}"
        )
    before = _newest_id(run)
    drain = not options.abort
    if code := _ask(run, want_sweep(run, options.concurrency, who(), level_limit_s=options.level_s, drain=drain)):
        return code
    if options.no_wait:
        return 0
    try:
        over = _follow(run, before, quiet=options.json)
    except KeyboardInterrupt:
        answer = await_answer(run, want_no_sweep(run, who()), ANSWER_TIMEOUT_S)
        complain(f"The sweep is cancelled, the run goes on. {'' if answer is None else answer.message}".rstrip())
        raise
    _show(run, options)
    return 0 if over is not None and over.state is SweepState.FINISHED else 1


def _ask(run: RunDir, intent: Intent) -> int:
    answer = await_answer(run, intent, ANSWER_TIMEOUT_S)
    if answer is None:
        complain(f"Written down. The supervisor of {run.name} has not answered: the wish waits for it.")
        return 1
    if not answer.accepted:
        complain(f"Refused: {answer.message}")
        return 1
    print(answer.message, file=sys.stderr)
    return 0


def _follow(run: RunDir, before: int, *, quiet: bool) -> Sweep | None:
    """Tells each level as it comes, and on a terminal what goes on in between. None where no sweep began, or nobody works."""
    told, shown = 0, _ProgressLine(quiet or not sys.stderr.isatty())
    deadline = time.monotonic() + BEGIN_TIMEOUT_S
    while True:
        newest = next(iter(sweeps_of(run, limit=1)), None)
        if newest is not None and newest.id > before:
            shown.clear()
            for level in newest.levels[told:]:
                if not quiet:
                    cells = level_rows([level])[0]
                    print(f"  {cells[0]:>5} in flight: {cells[1]:>7} tokens/s ± {cells[2]}", file=sys.stderr)
            told = len(newest.levels)
            if newest.state is not SweepState.RUNNING:
                return newest
            shown.show(progress_sentence(newest))
        elif time.monotonic() > deadline:
            complain("The sweep has not begun; the page Events says why.")
            return None
        if supervisor_state(run, time.time()) in (SupervisorState.DEAD, SupervisorState.LEFT):
            shown.clear()
            complain(f"The supervisor of {run.name} is gone; levels that were finished stay.")
            return None
        time.sleep(POLL_S)


def _show(run: RunDir, options: argparse.Namespace) -> int:
    view = read_status(run, time.time())
    told = read_sweep(run, view, load(run.config))
    if options.json:
        print(to_json(to_dict(told)))
    else:
        say(sweep_text(told))
    return 0


def sweep_text(view: SweepView) -> str:
    """The newest sweep for a terminal."""
    parts = [sweep_sentence(view)]
    if view.sweep is not None and view.sweep.levels:
        parts += ["", table(HEAD, level_rows(view.sweep.levels), left=0), ""]
    return "\n".join([*parts, *curve_sentences(view)]).rstrip()


def _newest_id(run: RunDir) -> int:
    return next((one.id for one in sweeps_of(run, limit=1)), 0)


class _ProgressLine:
    """One line of a terminal that is written again and again."""

    def __init__(self, silent: bool) -> None:
        self._silent, self._length = silent, 0

    def show(self, words: str) -> None:
        if not self._silent:
            sys.stderr.write(f"\r{words:<{self._length}}")
            sys.stderr.flush()
            self._length = len(words)

    def clear(self) -> None:
        if self._length:
            sys.stderr.write(f"\r{' ' * self._length}\r")
            self._length = 0
