"""Commands that only look at runs: `status`, `wait`, `list`, `logs`."""

from __future__ import annotations

import argparse
import sys
import time
from datetime import UTC
from typing import Final

from backend.commands.share import zone_of
from backend.commands.speaking import complain, say
from backend.config import ConfigError, load
from backend.control import ControlError
from backend.heartbeat import SupervisorState
from backend.report.formatting import plain
from backend.report.logs import find_log, follow, last_lines
from backend.report.redaction import without_secrets
from backend.report.status import read_status, to_json
from backend.report.status_text import list_text, status_text, summary, supervisor_sentence
from backend.report.told_end import with_end
from backend.report.views import RunView
from backend.report.waiting import judge_wait, parse_goal
from backend.run_dir import RunDirError
from backend.runs import find_run, list_runs, nearest, runs_folder

WAIT_POLL_S: Final = 0.5


def status(options: argparse.Namespace) -> int:
    """Shows a run."""
    run = find_run(options.run, runs_folder())
    view, end = with_end(run, read_status(run, time.time()), zone_of(None))
    print(to_json(view)) if options.json else say(status_text(view, end))
    return 0


def wait(options: argparse.Namespace) -> int:
    """Waits for a goal; 1 where it cannot come any more, or has not in time."""
    run, goal = find_run(options.run, runs_folder()), parse_goal(options.until)
    names = [d.name for d in load(run.config).datasets]
    if goal.dataset is not None and goal.dataset not in names:
        raise ControlError(
            f"The run {run.name} has no dataset {goal.dataset!r}. {nearest(goal.dataset, names, what='datasets')}"
        )
    deadline = None if options.timeout is None else time.monotonic() + options.timeout
    told: set[str] = set()
    while True:
        view = read_status(run, time.time())
        _warn_once(view, told)
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
    runs, views, unreadable = runs_folder(), [], []
    for run in list_runs(runs):
        try:
            views.append(with_end(run, read_status(run, time.time()), UTC)[0])
        except (ConfigError, RunDirError) as error:
            unreadable.append((run.name, str(error)))
    if options.json:
        broken = [{"name": name, "reason": reason} for name, reason in unreadable]
        print(to_json({"runs_folder": str(runs), "runs": views, "unreadable": broken}))
    else:
        say(list_text(views, unreadable) or f"There are no runs in {runs}.")
    return 0


def logs(options: argparse.Namespace) -> int:
    """Shows the end of a log, and follows it."""
    path = find_log(find_run(options.run, runs_folder()), options.server)
    lines, end = last_lines(path, options.lines)
    for line in lines:
        say(plain(without_secrets(line), keep="\t"))
    if options.follow:
        sys.stdout.flush()
        for line in follow(path, end):
            print(plain(without_secrets(line), keep="\t"), flush=True)
    return 0


def _warn_once(view: RunView, told: set[str]) -> None:
    """Who waits learns that nothing may come: the supervisor does not answer, or something cannot be read."""
    silent = view.supervisor.state is SupervisorState.NOT_ANSWERING
    for kind, sentence in [("silent", supervisor_sentence(view))] * silent + [(note, note) for note in view.notes]:
        if kind not in told:
            told.add(kind)
            complain(sentence)
