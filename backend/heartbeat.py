"""The supervisor as others see it: its lock, its last sign of life and what it said then. Writing them is the job's work."""

from __future__ import annotations

import fcntl
import json
import os
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any, Final

from backend.records import ApiState, ApiStatus, DatasetState, DatasetStatus, EngineState, JobStatus, ReplicaStatus, RunPhase
from backend.run_dir import RunDir, RunDirError

SILENT_AFTER_S: Final = 10.0  # a heartbeat is written each second
ENDED: Final = frozenset({RunPhase.FINISHED, RunPhase.STOPPED, RunPhase.FAILED})


class SupervisorState(StrEnum):
    """Whether somebody works on a run."""

    ALIVE = "alive"  # the lock is held, the heartbeat is fresh
    NOT_ANSWERING = "not answering"  # the lock is held, the heartbeat is old
    DEAD = "dead"  # the lock is free and the supervisor did not say that it leaves
    LEFT = "left"  # the lock is free: it finished, was stopped or gave up, and said so
    NEVER_STARTED = "never started"  # no supervisor ever held the lock


@dataclass(frozen=True, slots=True)
class Heartbeat:
    """The supervisor's last sign of life. `at` in epoch seconds."""

    at: float
    pid: int
    life: int
    phase: RunPhase
    status: JobStatus


def read_heartbeat(run: RunDir) -> Heartbeat | None:
    """The last heartbeat; None before the first. Raises RunDirError where state.sqlite cannot be read."""
    with reading(run.state) as con:
        if con is None or not has_table(con, "heartbeat"):
            return None
        row = con.execute("SELECT at, pid, life, phase, status FROM heartbeat").fetchone()
    if row is None:
        return None
    try:
        return Heartbeat(row["at"], row["pid"], row["life"], RunPhase(row["phase"]), job_status_from_json(row["status"]))
    except (ValueError, TypeError, KeyError) as error:
        raise RunDirError(
            f"{run.state}: the heartbeat cannot be understood ({error}). It was written by another version of Headway: "
            f"use that one, or stop the run and start it with this one."
        ) from None


def lock_is_held(run: RunDir) -> bool:
    """Whether a supervisor lives. A shared lock is tried and let go at once, which a starting supervisor's retries outlast."""
    try:
        fd = os.open(run.lock, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    except OSError as error:
        raise RunDirError(f"{run.lock} cannot be opened ({error.strerror}): ask as the user who started the run.") from None
    try:
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(fd)
    return False


def supervisor_state(run: RunDir, now: float) -> SupervisorState:
    """What the lock and the heartbeat say together; `now` in epoch seconds. Raises RunDirError."""
    return observe(run, now)[0]


def observe(run: RunDir, now: float) -> tuple[SupervisorState, Heartbeat | None]:
    """The same, with the heartbeat it was judged by. Raises RunDirError."""
    # the lock first: who leaves says so in the heartbeat before it lets go of the lock
    held = lock_is_held(run)
    heartbeat = read_heartbeat(run)
    state = judge(held=held, heartbeat=heartbeat, lock_changed_at=_changed_at(run.lock), now=now)
    if state is SupervisorState.DEAD and lock_is_held(run):
        # one came between both looks
        state = judge(held=True, heartbeat=heartbeat, lock_changed_at=_changed_at(run.lock), now=now)
    return state, heartbeat


def state_of_lock(run: RunDir, now: float) -> SupervisorState:
    """What the lock alone says, where the heartbeat cannot be read. Raises RunDirError."""
    return judge(held=lock_is_held(run), heartbeat=None, lock_changed_at=_changed_at(run.lock), now=now)


def judge(*, held: bool, heartbeat: Heartbeat | None, lock_changed_at: float | None, now: float) -> SupervisorState:
    """The same, from what was seen. Taking the lock counts as a sign of life: the first heartbeat comes a little later."""
    if held:
        signs = [at for at in (lock_changed_at, heartbeat.at if heartbeat else None) if at is not None]
        fresh = bool(signs) and now - max(signs) <= SILENT_AFTER_S
        return SupervisorState.ALIVE if fresh else SupervisorState.NOT_ANSWERING
    if heartbeat is None:
        return SupervisorState.NEVER_STARTED if lock_changed_at is None else SupervisorState.DEAD
    return SupervisorState.LEFT if heartbeat.phase in ENDED else SupervisorState.DEAD


def supervisor_pid(run: RunDir) -> int | None:
    """The pid that the lock's holder wrote into it; None where it holds none."""
    text = _lock_text(run).partition("\n")[0].strip()
    return int(text) if text.isascii() and text.isdigit() else None


def supervisor_words(run: RunDir) -> str | None:
    """Why the supervisor that holds the lock cannot write heartbeats, in its words; None while it can."""
    return _lock_text(run).partition("\n")[2].strip() or None


def job_status_from_json(text: str) -> JobStatus:
    """`dataclasses.asdict(JobStatus)` as JSON, read back. Raises ValueError, KeyError or TypeError on another shape."""
    values: dict[str, Any] = json.loads(text)
    datasets = tuple(_dataset_status(d) for d in values.pop("datasets"))
    replicas = tuple(_replica_status(r) for r in values.pop("replicas"))
    apis = tuple(ApiStatus(**{**api, "state": ApiState(api["state"])}) for api in values.pop("apis", ()))
    values |= {"phase": RunPhase(values["phase"]), "order": tuple(values["order"])}
    return JobStatus(datasets=datasets, replicas=replicas, apis=apis, **values)


def _replica_status(values: dict[str, Any]) -> ReplicaStatus:
    command = tuple(values.get("command", ()))  # a supervisor of an earlier Headway does not tell it
    return ReplicaStatus(**{**values, "state": EngineState(values["state"]), "command": command})


def _dataset_status(values: dict[str, Any]) -> DatasetStatus:
    wanted = values.get("wanted")
    enums = {"state": DatasetState(values["state"]), "wanted": None if wanted is None else DatasetState(wanted)}
    return DatasetStatus(**{**values, **enums})


@contextmanager
def reading(database: Path) -> Iterator[sqlite3.Connection | None]:
    """A read-only connection to one of a run's databases, None where there is none; SQLite's errors become RunDirError."""
    if not database.exists():
        yield None
        return
    try:
        with closing(_connect(database)) as con:
            yield con
    except sqlite3.Error as error:
        raise RunDirError(f"{database} cannot be read: {explain_sqlite(error)}") from None


def has_table(con: sqlite3.Connection, name: str) -> bool:
    """A table or a view. False in a database that was made a moment ago and is still empty."""
    return (
        con.execute("SELECT 1 FROM sqlite_master WHERE type IN ('table', 'view') AND name = ?", (name,)).fetchone() is not None
    )


def explain_sqlite(error: sqlite3.Error) -> str:
    """SQLite's error with what to do about it, as a sentence."""
    text = str(error)
    remedies = {
        "locked": "another process holds it for long; try again in a moment.",
        "busy": "another process holds it for long; try again in a moment.",
        "not a database": "the file is damaged. Move it away; Headway makes a new one (its history is lost then, no samples "
        "are if it was state.sqlite).",
        "malformed": "the file is damaged. Move it away; Headway makes a new one (its history is lost then, no samples are if "
        "it was state.sqlite).",
        "readonly": "you may not write to it; act as the user who started the run.",
        "unable to open": "it cannot be opened; look at its permissions and at its folder's.",
        "full": "the disk is full; make room.",
    }
    remedy = next((words for part, words in remedies.items() if part in text), "look at the file and its disk.")
    return f"{text}; {remedy}"


def _connect(database: Path) -> sqlite3.Connection:
    con = sqlite3.connect(f"{database.absolute().as_uri()}?mode=ro", uri=True, timeout=10.0, isolation_level=None)
    con.row_factory = sqlite3.Row
    return con


def _lock_text(run: RunDir) -> str:
    try:
        return run.lock.read_text(errors="replace")
    except OSError:
        return ""


def _changed_at(path: Path) -> float | None:
    """When a supervisor last wrote into the lock. A time of 0: maintenance made the file, and no supervisor ever held it."""
    try:
        return path.stat().st_mtime or None
    except OSError:
        return None
