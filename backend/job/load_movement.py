"""Tells a slow model load from one that hangs: something moves as long as the log grows, bytes are read or written, memory of
the host or of the GPU changes, or processes (compilers) come and go. CPU time proves nothing: a hung NCCL spins."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from backend.job.process_tree import ProcessMark, io_bytes, resident_bytes

_IO_STEP_BYTES = 1 << 20  # threads that poll /proc read a little all the time
_MEMORY_STEP_BYTES = 16 << 20


@dataclass(frozen=True, slots=True)
class LoadSigns:
    """What is looked at, at one moment. None: cannot be known."""

    log_bytes: int
    io_bytes: int | None
    resident_bytes: int | None
    gpu_bytes: int | None
    processes: frozenset[ProcessMark]


def read_signs(log_bytes: int, processes: Collection[ProcessMark], gpu_bytes: int | None) -> LoadSigns:
    """The signs of a server made of these processes."""
    io = [count for mark in processes if (count := io_bytes(mark.pid)) is not None]
    resident = [count for mark in processes if (count := resident_bytes(mark.pid)) is not None]
    return LoadSigns(log_bytes, sum(io) if io else None, sum(resident) if resident else None, gpu_bytes, frozenset(processes))


def has_moved(before: LoadSigns, after: LoadSigns) -> bool:
    """Whether anything moved between two moments."""
    return (
        before.log_bytes != after.log_bytes
        or before.processes != after.processes
        or _differs(before.io_bytes, after.io_bytes, _IO_STEP_BYTES)
        or _differs(before.resident_bytes, after.resident_bytes, _MEMORY_STEP_BYTES)
        or _differs(before.gpu_bytes, after.gpu_bytes, _MEMORY_STEP_BYTES)
    )


def _differs(before: int | None, after: int | None, step: int) -> bool:
    return before is not None and after is not None and abs(after - before) >= step


class LoadMovement:
    """Remembers when a load last moved."""

    def __init__(self, now: float) -> None:
        self.last_movement_at = now
        self._signs: LoadSigns | None = None  # at the last movement, so that slow growth adds up to a step

    def look(self, signs: LoadSigns, now: float) -> None:
        """Takes note of the signs of this moment."""
        if self._signs is None or has_moved(self._signs, signs):
            self._signs = signs
            self.last_movement_at = now
