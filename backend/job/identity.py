"""Proves that processes and a server are ours. Anything not proven is never used, and never signalled."""

from __future__ import annotations

import http.client
import os
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from backend.job.launch_command import LAUNCH_VARIABLE, REPLICA_VARIABLE, RUN_VARIABLE
from backend.job.ports import describe_holder
from backend.job.process_tree import (
    ProcessMark,
    ProcessStat,
    all_processes,
    boot_id,
    descendants,
    holders,
    is_alive,
    listening_inodes,
    read_environ,
    read_stat,
)
from backend.job.server_record import ServerRecord

_KEY_CHECK_TIMEOUT_S = 2.0
_KEY_CHECK_TRIES = 3


class Verdict(StrEnum):
    """What is known about the server of a record."""

    SERVING = "serving"  # proven ours, and it holds its port
    LOADING = "loading"  # proven ours, not listening yet, and never was ready
    BROKEN = "broken"  # ours, but of no use
    GONE = "gone"  # its main process has ended


@dataclass(frozen=True, slots=True)
class Proof:
    """A verdict and why, in words."""

    verdict: Verdict
    reason: str


def owned_processes(record: ServerRecord, *, read_environments: bool = True) -> set[ProcessMark]:
    """The live processes of this life of the server: its main process, what was seen below it earlier, the rest of its
    session, all their children, and (the dear part) whatever carries its launch id in its environment."""
    alive = {pid: stat for pid, stat in all_processes().items() if stat.alive and pid != os.getpid()}
    proven: set[int] = set()
    if record.boot == boot_id():
        known = [*record.children] if record.main is None else [record.main, *record.children]
        proven = {mark.pid for mark in known if mark.pid in alive and alive[mark.pid].mark == mark}
    if read_environments:
        proven |= {pid for pid in alive if (read_environ(pid) or {}).get(LAUNCH_VARIABLE) == record.launch}
    # A session number is not given away while one process is in it: one proven member proves the others.
    leader = record.main.pid if record.main is not None else None
    if leader is not None and any(alive[pid].session == leader for pid in proven):
        proven |= {pid for pid, stat in alive.items() if stat.session == leader}
    for pid in list(proven):
        proven |= descendants(pid, alive)
    return {alive[pid].mark for pid in proven}


def processes_of_replica(run: Path, replica: str) -> dict[str, list[ProcessStat]]:
    """Live processes that carry this run and replica in their environment, by launch id: finds a server also where its
    record is lost."""
    found: dict[str, list[ProcessStat]] = {}
    for pid, stat in all_processes().items():
        if not stat.alive or pid == os.getpid():
            continue
        env = read_environ(pid) or {}
        launch = env.get(LAUNCH_VARIABLE)
        if launch and env.get(RUN_VARIABLE) == str(run) and env.get(REPLICA_VARIABLE) == replica:
            found.setdefault(launch, []).append(stat)
    return found


def holds_port(port: int, processes: set[ProcessMark]) -> bool | None:
    """Whether every listener on `port` is one of `processes`; None where nobody listens."""
    inodes = listening_inodes(port)
    if not inodes:
        return None
    pids = [mark.pid for mark in processes]
    return all(holders({inode}, pids) for inode in inodes)


def prove(record: ServerRecord, key_accepted: Callable[[ServerRecord], bool | None] | None = None) -> Proof:
    """What can be said about the server of a record left by a former supervisor."""
    main = record.main
    if record.boot != boot_id() or main is None or not is_alive(main):
        return Proof(Verdict.GONE, "its main process has ended")
    stat = read_stat(main.pid)
    if stat is None or stat.session != main.pid:
        return Proof(Verdict.BROKEN, f"process {main.pid} no longer leads a session of its own")
    launch = (read_environ(main.pid) or {}).get(LAUNCH_VARIABLE)
    if launch not in (None, record.launch):
        return Proof(Verdict.BROKEN, f"process {main.pid} carries another launch id")
    ours = holds_port(record.port, owned_processes(record, read_environments=False))
    if ours is None:
        if record.ready_at is None:
            return Proof(Verdict.LOADING, f"process {main.pid} still loads the model")
        return Proof(Verdict.BROKEN, f"process {main.pid} was ready and no longer listens on port {record.port}")
    if not ours:
        return Proof(Verdict.BROKEN, f"port {record.port} is held by {describe_holder(record.port)}, not by process {main.pid}")
    accepted = (key_accepted or check_key)(record)
    if accepted is False:
        return Proof(Verdict.BROKEN, f"the server on port {record.port} does not know the API key of its record")
    if accepted is None and launch is None:
        return Proof(Verdict.BROKEN, f"process {main.pid} shows no launch id, and its API key could not be checked")
    answered = "it answered" if accepted else "it did not answer in time"
    return Proof(Verdict.SERVING, f"process {main.pid} holds port {record.port}; {answered}")


def check_key(record: ServerRecord) -> bool | None:
    """True: the server takes the record's key and refuses a wrong one (or, where it was started without a key, answers).
    False: it contradicts its record. None: it gave no clear answer in time."""
    for _ in range(_KEY_CHECK_TRIES):
        right = _models_status(record, record.api_key)
        if right in (401, 403):
            return False
        if right != 200:
            continue
        if record.api_key is None:
            return True
        wrong = _models_status(record, "not-" + record.api_key)
        if wrong is not None:
            return wrong in (401, 403)
    return None


def _models_status(record: ServerRecord, key: str | None) -> int | None:
    connection = http.client.HTTPConnection(record.host, record.port, timeout=_KEY_CHECK_TIMEOUT_S)
    try:
        connection.request("GET", "/v1/models", headers={} if key is None else {"Authorization": f"Bearer {key}"})
        return connection.getresponse().status
    except (OSError, http.client.HTTPException):
        return None
    finally:
        connection.close()
