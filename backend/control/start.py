"""Starts a run's supervisor as a process that outlives who started it, and waits until it is there or says why it is not."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Final

from backend.control import ControlError
from backend.control.intents import want_run
from backend.heartbeat import ENDED, has_table, lock_is_held, read_heartbeat, reading, supervisor_pid
from backend.records import Intent, RunPhase
from backend.run_dir import RunDir

START_TIMEOUT_S: Final = 20.0  # until the first heartbeat; importing takes seconds on a busy machine
POLL_S: Final = 0.05
EXIT_LOCK_HELD: Final = 3  # the supervisor's exit code when another one holds the lock
LOG_WORDS_BYTES: Final = 4000
SUPERVISOR: Final = (sys.executable, "-m", "backend.job")


class StartOutcome(StrEnum):
    """What became of a start."""

    STARTED = "started"  # it holds the lock and has sent a heartbeat
    ALREADY_RUNNING = "already running"  # another supervisor holds the lock: nothing was done
    ENDED = "ended"  # it came, found nothing left to do and left
    SLOW = "slow"  # its process lives, it has not sent a heartbeat yet
    FAILED = "failed"  # it left again; `reason` says why


@dataclass(frozen=True, slots=True)
class StartResult:
    """What became of a start, and the intent that was written for it."""

    outcome: StartOutcome
    intent: Intent
    pid: int | None
    reason: str | None = None


_NOT_YET: Final = frozenset({RunPhase.STARTING, RunPhase.FAILED})


def start(run: RunDir, who: str, *, token: str | None = None, timeout_s: float = START_TIMEOUT_S) -> StartResult:
    """Writes the wish that the run be running, and starts a supervisor unless one lives. Harmless to repeat.

    Raises:
        ControlError: the wish or the log cannot be written.
        RunDirError: the lock or state.sqlite cannot be read.
    """
    intent = want_run(run, "running", who, token=token)
    if lock_is_held(run):
        return StartResult(StartOutcome.ALREADY_RUNNING, intent, _running_pid(run))
    began_at = time.time()
    log_offset = _size(run.supervisor_log())
    process = _spawn(run)
    deadline = time.monotonic() + timeout_s
    while True:
        code = process.poll()
        if code is not None:
            return _after_exit(run, intent, process.pid, code, began_at=began_at, log_offset=log_offset)
        heartbeat = read_heartbeat(run)
        ours = heartbeat is not None and heartbeat.pid == process.pid and heartbeat.at >= began_at
        # While it is starting it checks what would make the engine fail; one that found something leaves in a moment.
        if ours and heartbeat is not None and heartbeat.phase not in _NOT_YET and lock_is_held(run):
            _reap_in_background(process)
            return StartResult(StartOutcome.STARTED, intent, process.pid)
        if time.monotonic() >= deadline:
            _reap_in_background(process)
            return StartResult(StartOutcome.SLOW, intent, process.pid)
        time.sleep(POLL_S)


def supervisor_environment() -> dict[str, str]:
    """The supervisor's environment: ours, with `backend` importable and without Prometheus' multi-process folder."""
    environment = dict(os.environ)
    # SGLang's own servers would share this folder with whoever set it: facts of other processes would mix with ours
    environment.pop("PROMETHEUS_MULTIPROC_DIR", None)
    root = str(Path(__file__).resolve().parents[2])
    paths = [p for p in environment.get("PYTHONPATH", "").split(os.pathsep) if p]
    environment["PYTHONPATH"] = os.pathsep.join([root, *(os.path.abspath(p) for p in paths if os.path.abspath(p) != root)])
    return environment


def _spawn(run: RunDir) -> subprocess.Popen[bytes]:
    try:
        run.create_folders()
        with run.supervisor_log().open("ab") as log:
            return subprocess.Popen(
                [*SUPERVISOR, str(run.root)],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                cwd="/",
                env=supervisor_environment(),
                start_new_session=True,
            )
    except OSError as error:
        raise ControlError(f"The supervisor of {run.name} could not be started: {error}.") from None


def _after_exit(run: RunDir, intent: Intent, pid: int, code: int, *, began_at: float, log_offset: int) -> StartResult:
    if code == EXIT_LOCK_HELD:
        return StartResult(StartOutcome.ALREADY_RUNNING, intent, _running_pid(run))
    heartbeat = read_heartbeat(run)
    ours = heartbeat is not None and heartbeat.pid == pid and heartbeat.at >= began_at
    if code == 0 and heartbeat is not None and ours and heartbeat.phase in (RunPhase.FINISHED, RunPhase.STOPPED):
        return StartResult(StartOutcome.ENDED, intent, pid, f"The run is {heartbeat.phase.value}.")
    words = _last_event(run, began_at) or _log_words(run, log_offset) or "it said nothing."
    how = f"was ended by signal {-code}" if code < 0 else f"left with exit code {code}"
    return StartResult(StartOutcome.FAILED, intent, None, f"The supervisor {how}: {words}")


def _running_pid(run: RunDir) -> int | None:
    """The living supervisor's pid: from the lock, else from a heartbeat that does not say it left."""
    pid = supervisor_pid(run)
    if pid is not None:
        return pid
    heartbeat = read_heartbeat(run)
    return None if heartbeat is None or heartbeat.phase in ENDED else heartbeat.pid


def _last_event(run: RunDir, since: float) -> str | None:
    with reading(run.state) as con:
        if con is None or not has_table(con, "events"):
            return None
        row = con.execute(
            "SELECT message FROM events WHERE at >= ? AND severity = 'error' ORDER BY id DESC LIMIT 1", (since,)
        ).fetchone()
    return None if row is None else str(row["message"])


def _log_words(run: RunDir, offset: int) -> str | None:
    """The last line that was logged since `offset`: of a traceback, that is the error."""
    try:
        with run.supervisor_log().open("rb") as log:
            log.seek(max(offset, _size(run.supervisor_log()) - LOG_WORDS_BYTES))
            lines = log.read(LOG_WORDS_BYTES).decode(errors="replace").splitlines()
    except OSError:
        return None
    spoken = [line.strip() for line in lines if line.strip()]
    return f"{spoken[-1]} (more in {run.supervisor_log()})" if spoken else None


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0


def _reap_in_background(process: subprocess.Popen[bytes]) -> None:
    """Whoever started it may live longer (a page's server): without this an ended supervisor would stay a zombie."""
    threading.Thread(target=process.wait, name=f"reap {process.pid}", daemon=True).start()
