"""Ends all processes of a server and verifies it: ask, wait, ask everything, kill everything, look again."""

from __future__ import annotations

import asyncio
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass

from backend.job.identity import holds_port, owned_processes
from backend.job.ports import describe_holder, is_free
from backend.job.process_tree import ProcessMark, is_alive, send_signal
from backend.job.replica import StopReport
from backend.job.server_record import ServerRecord

_POLL_S = 0.05
_AFTER_TERM_S = 5.0  # what is left when the main process has gone gets this long
_AFTER_KILL_S = 15.0  # a process that frees much GPU memory needs seconds to die
_PORT_FREE_S = 10.0
_GPU_FREE_S = 30.0
_GPU_SLACK_BYTES = 1 << 30


@dataclass(frozen=True, slots=True)
class StopTimes:
    """How long each step may take, in seconds."""

    deadline_s: float
    after_term_s: float = _AFTER_TERM_S
    after_kill_s: float = _AFTER_KILL_S
    port_free_s: float = _PORT_FREE_S
    gpu_free_s: float = _GPU_FREE_S


@dataclass(frozen=True, slots=True)
class Ended:
    """What ending the processes of a server came to."""

    killed: int
    left: tuple[int, ...]  # processes that cannot be ended
    politely: bool  # the main process ended by itself within the deadline


async def end_processes(record: ServerRecord, times: StopTimes, reap: Callable[[], object]) -> Ended:
    """SIGTERM to the main process, after the deadline to all, then SIGKILL to all until none is left. `reap` is called
    between looks, so that a child that ended does not stay a zombie."""
    main = record.main
    politely = True
    if main is not None and send_signal(main, signal.SIGTERM):
        politely = await _wait_until(lambda: not is_alive(main), times.deadline_s, reap)
    left = owned_processes(record)
    if left:
        for mark in left:
            send_signal(mark, signal.SIGTERM)
        await _wait_until(lambda: not any(is_alive(mark) for mark in left), min(times.after_term_s, times.deadline_s), reap)
    killed: set[ProcessMark] = set()

    def none_left() -> bool:
        remaining = owned_processes(record)
        for mark in remaining:
            if send_signal(mark, signal.SIGKILL):
                killed.add(mark)
        return not remaining

    await _wait_until(none_left, times.after_kill_s, reap, poll_s=0.2)
    return Ended(len(killed), tuple(sorted(mark.pid for mark in owned_processes(record))), politely)


def kill_now(record: ServerRecord, *, timeout_s: float = 10.0) -> tuple[int, ...]:
    """SIGKILL to all processes of a server that is of no use, at once. Returns the numbers of those that are left."""
    deadline = time.monotonic() + timeout_s
    while True:
        remaining = owned_processes(record)
        if not remaining:
            return ()
        for mark in remaining:
            send_signal(mark, signal.SIGKILL)
        if time.monotonic() > deadline:
            return tuple(sorted(mark.pid for mark in remaining))
        time.sleep(_POLL_S)


def await_gpu_memory(
    before_bytes: int | None, gpu_memory_used: Callable[[], int | None], *, timeout_s: float = _GPU_FREE_S
) -> None:
    """Blocks until the GPUs hold about what they held before the launch: a new server would else find too little."""
    deadline = time.monotonic() + timeout_s
    while not _is_back(before_bytes, gpu_memory_used()) and time.monotonic() < deadline:
        time.sleep(0.5)


async def report_stop(
    record: ServerRecord,
    times: StopTimes,
    gpu_memory_used: Callable[[], int | None],
    *,
    how: str,
    troubles: list[str],
    exit_code: int | None,
    killed: int,
) -> StopReport:
    """Waits for port and GPU memory and tells how the stop went. `how`: how it ended; `troubles`: what went wrong so far."""
    found = list(troubles)
    for trouble in (
        await _wait_for_port(record, times),
        await _wait_for_gpu_memory(record.gpu_memory_before_bytes, gpu_memory_used, times),
    ):
        if trouble is not None:
            found.append(trouble)
    verified = "; ".join(found) if found else "nothing of it is left, its port is free"
    return StopReport(not found, f"replica {record.replica}: {how}; {verified}", exit_code, killed)


async def _wait_for_port(record: ServerRecord, times: StopTimes) -> str | None:
    """Waits until the port is free; else says who holds it."""
    if await _wait_until(lambda: is_free(record.port, record.host), times.port_free_s, poll_s=0.2):
        return None
    ours = holds_port(record.port, owned_processes(record))
    whose = "a process of this server" if ours else describe_holder(record.port)
    return f"port {record.port} is still held by {whose}"


async def _wait_for_gpu_memory(
    before_bytes: int | None, gpu_memory_used: Callable[[], int | None], times: StopTimes
) -> str | None:
    """Waits until the GPUs hold about what they held before the launch (a kill only begins to free memory); else says how
    much is held. None as well where it cannot be known."""
    if await _wait_until(lambda: _is_back(before_bytes, gpu_memory_used()), times.gpu_free_s, poll_s=0.5):
        return None
    used = gpu_memory_used()
    if used is None or before_bytes is None or _is_back(before_bytes, used):
        return None
    return (
        f"{used / 2**30:.1f} GiB of GPU memory are still in use ({before_bytes / 2**30:.1f} GiB before the server was started)"
    )


def _is_back(before_bytes: int | None, used_bytes: int | None) -> bool:
    return before_bytes is None or used_bytes is None or used_bytes <= before_bytes + _GPU_SLACK_BYTES


async def _wait_until(
    condition: Callable[[], bool], timeout_s: float, reap: Callable[[], object] | None = None, poll_s: float = _POLL_S
) -> bool:
    deadline = time.monotonic() + timeout_s
    while True:
        if reap is not None:
            reap()
        if condition():
            return True
        if time.monotonic() >= deadline:
            return False
        await asyncio.sleep(poll_s)
