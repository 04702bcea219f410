"""Commands that do something to a run: `create`, `start`, `stop`, `pause`, `resume`, `kill`, `redo`, `set`, `engine`."""

from __future__ import annotations

import argparse
import time
from getpass import getuser
from pathlib import Path
from typing import Any, Final

from backend.commands.speaking import complain, say
from backend.config import load
from backend.control import ControlError
from backend.control.create import create as create_run
from backend.control.intents import (
    await_answer,
    current_setting,
    parse_setting,
    want_dataset,
    want_engine,
    want_redo,
    want_run,
    want_setting,
)
from backend.control.start import StartOutcome
from backend.control.start import start as start_run
from backend.heartbeat import SupervisorState, lock_is_held, supervisor_state
from backend.records import Intent
from backend.report.counts import Counts, read_counts
from backend.report.formatting import DASH, compact, plural
from backend.report.spend_bounds import spend_bound_warnings
from backend.run_dir import RunDir
from backend.runs import command_name, find_run, runs_folder

ANSWER_TIMEOUT_S: Final = 5.0


def create(options: argparse.Namespace) -> int:
    """Makes a run and says how it is started."""
    run = create_run(Path(options.config), runs_folder())
    settings = load(run.config)
    files = settings.frozen.prompt_files if settings.frozen else {}
    say(f"Created {run.root}.")
    for dataset in settings.datasets:
        found = files.get(dataset.name, [])
        say(f"  {dataset.name}: {plural(sum(f.records for f in found), 'prompt')} in {plural(len(found), 'file')}")
    caps_tokens = {dataset.name: settings.sampling_for(dataset).max_new_tokens for dataset in settings.datasets}
    caps_usd = {name: api.spend_cap_usd for name, api in settings.api.items()}
    for words in spend_bound_warnings(settings, command_name(run), caps_tokens, caps_usd):
        say(f"Mind: {words}")
    say(f"Start it with: python -m backend start {command_name(run)}")
    return 0


def start(options: argparse.Namespace) -> int:
    """Starts the supervisor; harmless where one lives."""
    run = find(options)
    load(run.config)  # a broken run.toml is said here and now, in place of in a log
    result = start_run(run, who())
    if result.outcome is StartOutcome.ALREADY_RUNNING and not options.no_wait:
        answer = await_answer(run, result.intent, ANSWER_TIMEOUT_S)
        if answer is None and not lock_is_held(run):
            # it was about to leave, as after a stop, and did not read the wish: a new one does
            result = start_run(run, who(), token=result.intent.token)
    pid = result.pid if result.pid is not None else DASH
    if result.outcome is StartOutcome.ALREADY_RUNNING:
        say(f"{run.name} is already running (pid {pid}).")
        return ask_supervisor(run, result.intent, options)
    if result.outcome is StartOutcome.FAILED:
        complain(f"{run.name} could not be started. {result.reason}")
        return 1
    if result.outcome is StartOutcome.SLOW:
        say(f"{run.name} was started (pid {pid}) and has not given a sign of life yet; status {command_name(run)} tells more.")
    elif result.outcome is StartOutcome.ENDED:
        say(f"{run.name} was started and has left again. {result.reason}")
    else:
        say(f"{run.name} is running (pid {pid}). See how it goes with: python -m backend status {command_name(run)}")
    return 0


def stop(options: argparse.Namespace) -> int:
    """Asks the run to stop."""
    run = find(options)
    if _state(run) in (SupervisorState.LEFT, SupervisorState.NEVER_STARTED):
        # written all the same it would stop the next start; there is nothing to stop
        say(f"{run.name} is not running: nothing to stop.")
        return 0
    if _state(run) is SupervisorState.DEAD:
        raise ControlError(
            f"The supervisor of {run.name} is dead, nobody can stop the run; its engine may still be there. To end that too: "
            f"python -m backend start {command_name(run)}, then stop."
        )
    return ask_supervisor(run, want_run(run, "stopped", who(), now=options.now), options)


def pause(options: argparse.Namespace) -> int:
    """Asks a dataset to pause."""
    run = find(options)
    return ask_supervisor(run, want_dataset(run, options.dataset, "paused", who(), now=options.now), options)


def resume(options: argparse.Namespace) -> int:
    """Asks a dataset to go on."""
    run = find(options)
    return ask_supervisor(run, want_dataset(run, options.dataset, "running", who()), options)


def kill(options: argparse.Namespace) -> int:
    """Asks a dataset to end, and says what stays of it."""
    run = find(options)
    code = ask_supervisor(run, want_dataset(run, options.dataset, "killed", who()), options)
    counts = read_counts(run)
    if code != 0 or counts is None:
        return code
    stays = counts.get(options.dataset, Counts())
    say(
        f"{plural(stays.finished_samples, 'finished sample')} of {options.dataset} "
        f"({compact(stays.completion_tokens)} tokens) stay. It can be revived: "
        f"python -m backend resume {command_name(run)} {options.dataset}"
    )
    return code


def redo(options: argparse.Namespace) -> int:
    """Asks for samples to be made again."""
    run = find(options)
    outcomes = [name.strip() for text in options.outcome for name in text.split(",") if name.strip()]
    return ask_supervisor(run, want_redo(run, options.dataset, outcomes, who()), options)


def change(options: argparse.Namespace) -> int:
    """Asks for another value of a setting."""
    run = find(options)
    key, equals, text = options.setting.partition("=")
    if not equals:
        raise ControlError(f"{options.setting!r} is not KEY=VALUE; for example: set {command_name(run)} concurrency=96")
    canonical, new = parse_setting(run, key.strip(), text.strip())
    old = current_setting(run, canonical)
    intent = want_setting(run, key.strip(), text.strip(), who())
    if options.no_wait or _state(run) is not SupervisorState.ALIVE:  # else the answer says it
        say(f"{canonical}: {_value(old)} → {_value(new)}")
    return ask_supervisor(run, intent, options)


def engine(options: argparse.Namespace) -> int:
    """Asks the engine to stop or to start."""
    run = find(options)
    want = "running" if options.want == "start" else "stopped"
    return ask_supervisor(run, want_engine(run, want, who()), options)


def find(options: argparse.Namespace) -> RunDir:
    """The run that a command names."""
    return find_run(options.run, runs_folder())


def _state(run: RunDir) -> SupervisorState:
    return supervisor_state(run, time.time())


def ask_supervisor(run: RunDir, intent: Intent, options: argparse.Namespace) -> int:
    """Prints the supervisor's answer to what was written, or that the wish waits for one."""
    state = _state(run)
    if state is SupervisorState.ALIVE:
        if options.no_wait:
            say("Asked; not waited for the answer.")
            return 0
        answer = await_answer(run, intent, ANSWER_TIMEOUT_S)
        if answer is None:
            say(f"Asked; the supervisor has not answered within {ANSWER_TIMEOUT_S:g} s, the wish stays.")
            return 0
        (say if answer.accepted else complain)(answer.message if answer.accepted else f"Refused: {answer.message}")
        return 0 if answer.accepted else 1
    if state is SupervisorState.NOT_ANSWERING:
        say(f"Written down. The supervisor of {run.name} does not answer at the moment: the wish waits for it.")
    else:
        say(f"Written down. {run.name} is not running: the wish waits until python -m backend start {command_name(run)}")
    return 0


def who() -> str:
    """Who asks, as far as it is known."""
    try:
        return f"cli:{getuser()}"
    except (KeyError, OSError):
        return "cli"  # a container's user without a name


def _value(value: Any) -> str:
    if value is None:
        return "none"
    return ", ".join(map(str, value)) if isinstance(value, list | tuple) else str(value)
