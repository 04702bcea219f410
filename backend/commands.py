"""What each command of the CLI does: ask `control` or `report`, and print it. `__main__.py` says which function is which."""

from __future__ import annotations

import argparse
import json
import sqlite3
import sys
import time
from dataclasses import asdict
from getpass import getuser
from pathlib import Path
from typing import Any, Final

from backend.config import ConfigError
from backend.control import ControlError
from backend.control.intents import (
    await_answer,
    current_setting,
    load_config,
    parse_setting,
    want_dataset,
    want_engine,
    want_redo,
    want_run,
    want_setting,
)
from backend.heartbeat import SupervisorState, explain_sqlite, supervisor_state
from backend.prompts import PromptFileError
from backend.records import Intent
from backend.report.formatting import DASH, compact, plain, plural
from backend.run_dir import RunDir, RunDirError
from backend.runs import command_name, find_run, list_runs, nearest, runs_folder

ANSWER_TIMEOUT_S: Final = 5.0
WAIT_POLL_S: Final = 0.5
REFUSALS: Final = (ConfigError, ControlError, RunDirError, PromptFileError, sqlite3.Error, OSError)


def create(options: argparse.Namespace) -> int:
    """Makes a run and says how it is started."""
    from backend.control.create import create as create_run

    run = create_run(Path(options.config), runs_folder())
    settings = load_config(run)
    files = settings.frozen.prompt_files if settings.frozen else {}
    say(f"Created {run.root}.")
    for dataset in settings.datasets:
        found = files.get(dataset.name, [])
        say(f"  {dataset.name}: {plural(sum(f.records for f in found), 'prompt')} in {plural(len(found), 'file')}")
    say(f"Start it with: python -m backend start {command_name(run)}")
    return 0


def start(options: argparse.Namespace) -> int:
    """Starts the supervisor; harmless where one lives."""
    from backend.control.start import StartOutcome
    from backend.control.start import start as start_run

    run = _find(options)
    load_config(run)  # a broken run.toml is said here and now, in place of in a log
    result = start_run(run, _who())
    pid = result.pid if result.pid is not None else DASH
    if result.outcome is StartOutcome.ALREADY_RUNNING:
        say(f"{run.name} is already running (pid {pid}).")
        return _tell_answer(run, result.intent, options)
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
    run = _find(options)
    if _state(run) in (SupervisorState.LEFT, SupervisorState.NEVER_STARTED):
        # written all the same it would stop the next start; there is nothing to stop
        say(f"{run.name} is not running: nothing to stop.")
        return 0
    if _state(run) is SupervisorState.DEAD:
        say(f"The supervisor of {run.name} is dead; its engine may still run. To end that too, start the run and stop it.")
    return _tell_answer(run, want_run(run, "stopped", _who(), now=options.now), options)


def pause(options: argparse.Namespace) -> int:
    """Asks a dataset to pause."""
    run = _find(options)
    return _tell_answer(run, want_dataset(run, options.dataset, "paused", _who(), now=options.now), options)


def resume(options: argparse.Namespace) -> int:
    """Asks a dataset to go on."""
    run = _find(options)
    return _tell_answer(run, want_dataset(run, options.dataset, "running", _who()), options)


def kill(options: argparse.Namespace) -> int:
    """Asks a dataset to end, and says what stays of it."""
    from backend.report.counts import Counts, read_counts

    run = _find(options)
    code = _tell_answer(run, want_dataset(run, options.dataset, "killed", _who()), options)
    counts = (read_counts(run) or {}).get(options.dataset, Counts())
    say(
        f"{plural(counts.finished_samples, 'finished sample')} of {options.dataset} "
        f"({compact(counts.completion_tokens)} tokens) stay. It can be revived: "
        f"python -m backend resume {command_name(run)} {options.dataset}"
    )
    return code


def redo(options: argparse.Namespace) -> int:
    """Asks for samples to be made again."""
    run = _find(options)
    outcomes = [name.strip() for text in options.outcome for name in text.split(",") if name.strip()]
    return _tell_answer(run, want_redo(run, options.dataset, outcomes, _who()), options)


def change(options: argparse.Namespace) -> int:
    """Asks for another value of a setting."""
    run = _find(options)
    key, equals, text = options.setting.partition("=")
    if not equals:
        raise ControlError(f"{options.setting!r} is not KEY=VALUE; for example: set {command_name(run)} concurrency=96")
    canonical, new = parse_setting(run, key.strip(), text.strip())
    say(f"{canonical}: {_value(current_setting(run, canonical))} → {_value(new)}")
    intent = want_setting(run, key.strip(), text.strip(), _who())
    return _tell_answer(run, intent, options)


def engine(options: argparse.Namespace) -> int:
    """Asks the engine to stop or to start."""
    run = _find(options)
    want = "running" if options.want == "start" else "stopped"
    return _tell_answer(run, want_engine(run, want, _who()), options)


def status(options: argparse.Namespace) -> int:
    """Shows a run."""
    from backend.report.status import read_status, to_json
    from backend.report.status_text import status_text

    view = read_status(_find(options), time.time())
    print(to_json(view)) if options.json else say(status_text(view))
    return 0


def wait(options: argparse.Namespace) -> int:
    """Waits for a goal; 1 where it cannot come any more, or has not in time."""
    from backend.report.status import read_status
    from backend.report.status_text import summary, supervisor_sentence
    from backend.report.waiting import judge_wait, parse_goal

    run, goal = _find(options), parse_goal(options.until)
    names = [d.name for d in load_config(run).datasets]
    if goal.dataset is not None and goal.dataset not in names:
        raise ControlError(
            f"The run {run.name} has no dataset {goal.dataset!r}. {nearest(goal.dataset, names, what='datasets')}"
        )
    deadline = None if options.timeout is None else time.monotonic() + options.timeout
    while True:
        view = read_status(run, time.time())
        verdict = judge_wait(view, goal)
        if verdict is not None:
            (say if verdict.reached else complain)(verdict.message)
            return 0 if verdict.reached else 1
        left_s = WAIT_POLL_S if deadline is None else deadline - time.monotonic()
        if left_s <= 0:
            complain(f"Not within {options.timeout:g} s. {summary(view)} {supervisor_sentence(view)}")
            return 1
        time.sleep(min(WAIT_POLL_S, left_s))


def list_all(options: argparse.Namespace) -> int:
    """Shows all runs; one that cannot be read is named with the reason and hides no other."""
    from backend.report.status import read_status
    from backend.report.status_text import list_text

    runs, views, unreadable = runs_folder(), [], []
    for run in list_runs(runs):
        try:
            views.append(read_status(run, time.time()))
        except (ConfigError, RunDirError) as error:
            unreadable.append((run.name, str(error)))
    if options.json:
        broken = [{"name": name, "reason": reason} for name, reason in unreadable]
        print(json.dumps({"runs_folder": str(runs), "runs": [asdict(v) for v in views], "unreadable": broken}, indent=2))
    else:
        say(list_text(views, unreadable) or f"There are no runs in {runs}.")
    return 0


def logs(options: argparse.Namespace) -> int:
    """Shows the end of a log, and follows it."""
    from backend.report.logs import find_log, follow, last_lines

    path = find_log(_find(options), options.server)
    lines, end = last_lines(path, options.lines)
    for line in lines:
        say(plain(line, keep="\t"))
    if options.follow:
        sys.stdout.flush()
        for line in follow(path, end):
            print(plain(line, keep="\t"), flush=True)
    return 0


def say(text: str) -> None:
    """To stdout, with what would steer a terminal escaped."""
    print(plain(text, keep="\n\t"))


def complain(text: str) -> None:
    """To stderr, likewise."""
    sys.stdout.flush()
    print(plain(text), file=sys.stderr)


def in_words(error: Exception) -> str:
    """An error of `REFUSALS` as sentences."""
    if isinstance(error, sqlite3.Error):
        return f"A database of the run cannot be used: {explain_sqlite(error)}"
    if isinstance(error, OSError):
        return f"{error.filename or 'A file'}: {error.strerror or error}."
    return str(error)


def _find(options: argparse.Namespace) -> RunDir:
    return find_run(options.run, runs_folder())


def _state(run: RunDir) -> SupervisorState:
    return supervisor_state(run, time.time())


def _tell_answer(run: RunDir, intent: Intent, options: argparse.Namespace) -> int:
    """Prints the supervisor's answer, or that the wish waits for one."""
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


def _who() -> str:
    try:
        return f"cli:{getuser()}"
    except (KeyError, OSError):
        return "cli"  # a container's user without a name


def _value(value: Any) -> str:
    if value is None:
        return "none"
    return ", ".join(map(str, value)) if isinstance(value, list | tuple) else str(value)
