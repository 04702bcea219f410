"""Exports that a page starts: each a process of its own, so that no page ever waits for one, and known to every tab.

They end with the process that serves the pages; what is complete by then stays.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path
from typing import IO, Final

from backend.report.export.options import ExportError, ExportOptions
from backend.report.export.work import Progress
from backend.report.formatting import plural
from backend.run_dir import RunDir

ROOT: Final = Path(__file__).resolve().parents[3]
KEPT: Final = 20  # exports of a run that are remembered
WORDS_BYTES: Final = 4_000


class TaskState(StrEnum):
    """What became of an export."""

    RUNNING = "running"
    DONE = "done"
    FAILED = "failed"
    CANCELLED = "cancelled"


@dataclass(frozen=True, slots=True)
class ExportTask:
    """An export as a page shows it. Times are epoch seconds."""

    number: int
    to: Path
    format: str
    started_at: float
    state: TaskState = TaskState.RUNNING
    progress: Progress | None = None
    words: str = ""  # how it ended


class _Process:
    def __init__(self, task: ExportTask, process: subprocess.Popen[str], errors: IO[bytes]) -> None:
        self.task = task
        self.process = process
        self.errors = errors
        self.is_cancelled = False


_processes: dict[str, list[_Process]] = {}  # by the run's folder
_lock = threading.Lock()
_count = 0


def start_export(run: RunDir, options: ExportOptions) -> ExportTask:
    """Starts an export. Raises ExportError where one to the same folder is at work, or where no process can be made."""
    global _count  # noqa: PLW0603  (numbers tell apart what many tabs start)
    if "\0" in str(options.to):
        raise ExportError("No folder has a NUL character in its name. Name another one.")
    to = Path(os.path.abspath(os.path.expanduser(options.to)))
    with _lock:
        known = _processes.setdefault(str(run.root.absolute()), [])
        if any(one.task.to == to and one.task.state is TaskState.RUNNING for one in known):
            raise ExportError(f"An export to {to} is at work already.")
        errors = tempfile.TemporaryFile()  # noqa: SIM115  (read when the process has ended)
        try:
            process = subprocess.Popen(
                _command(run, options, to), cwd=ROOT, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=errors, text=True
            )
        except OSError as error:
            errors.close()
            raise ExportError(f"The export could not be started: {error.strerror}.") from None
        _count += 1
        one = _Process(ExportTask(_count, to, options.format.value, time.time()), process, errors)
        known.append(one)
        finished = [old for old in known if old.task.state is not TaskState.RUNNING]
        for old in finished[: max(0, len(known) - KEPT)]:
            known.remove(old)
    threading.Thread(target=_watch, args=(one,), name=f"export-{_count}", daemon=True).start()
    return one.task


def exports_of(run: RunDir) -> list[ExportTask]:
    """What was started here for a run, the newest first."""
    with _lock:
        return [one.task for one in reversed(_processes.get(str(run.root.absolute()), []))]


def cancel_export(run: RunDir, number: int) -> None:
    """Ends an export that is at work; harmless where it has ended."""
    with _lock:
        for one in _processes.get(str(run.root.absolute()), []):
            if one.task.number == number and one.task.state is TaskState.RUNNING:
                one.is_cancelled = True
                one.process.terminate()


def _command(run: RunDir, options: ExportOptions, to: Path) -> list[str]:
    words = [sys.executable, "-m", "backend", "export", str(run.root.absolute()), "--json", "--format", options.format.value]
    words += ["--to", str(to), "--outcomes", ",".join(options.outcomes), "--holdout", str(options.holdout)]
    words += ["--flagged", options.flagged.value]
    words += [word for name in options.datasets for word in ("--dataset", name)]
    if options.tokenizer is not None:
        words += ["--tokenizer", str(options.tokenizer)]
    flags = {"--parquet": options.parquet, "--force": options.force, "--keep-duplicates": options.keep_duplicates}
    return words + [flag for flag, is_on in flags.items() if is_on]


def _watch(one: _Process) -> None:
    """On a thread: follows what the process says until it has ended."""
    done: dict[str, object] | None = None
    with one.process.stdout or open(os.devnull) as lines:
        for line in lines:
            told = json.loads(line)
            done = told.get("done", done)
            if "progress" in told:
                with _lock:
                    one.task = replace(one.task, progress=Progress(**told["progress"]))
    code = one.process.wait()
    with one.errors as errors:
        errors.seek(0)
        said = errors.read(WORDS_BYTES).decode("utf-8", "replace").strip()
    with _lock:
        if code == 0 and done is not None:
            samples, holdout = int(str(done["samples"])), int(str(done["holdout"]))
            words = f"{plural(samples, 'sample')}, {holdout:,} of them held out." + (f" {said}" if said else "")
            one.task = replace(one.task, state=TaskState.DONE, words=words)
        elif one.is_cancelled:
            one.task = replace(one.task, state=TaskState.CANCELLED, words="Cancelled; nothing was left there.")
        else:
            words = said or f"The export ended without a word (exit code {code})."
            one.task = replace(one.task, state=TaskState.FAILED, words=words)
