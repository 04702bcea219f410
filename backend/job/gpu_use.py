"""Who uses the GPUs that a server is to have, or has had: asked for starts and stops, not for charts (that is sampler.py).

NVML may block for seconds when a driver is sick, so it is asked in a thread of its own and an answer that is late is no answer.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from backend.job.gpu import GpuReader, GpuUnavailable, visible_gpus

_FRESH_S = 1.0
_PATIENCE_S = 0.3


@dataclass(frozen=True, slots=True)
class GpuHold:
    """A process that holds memory on a GPU. pid None: the driver does not tell."""

    gpu: str
    pid: int | None
    memory_used_bytes: int | None


def read_gpu_holds(gpus: Sequence[int | str] | None) -> list[GpuHold]:
    """Who computes on these GPUs (None: on all). Raises GpuUnavailable: no driver, or a GPU that is not there. Blocks."""
    reader = GpuReader(gpus)
    reader.open()
    try:
        names = reader.keys
        found = reader.compute_processes()
    finally:
        reader.close()
    return [GpuHold(names[key], p.pid, p.memory_used_bytes) for key, processes in found.items() for p in processes or ()]


class GpuMemory:
    """Bytes in use on sets of GPUs. Calls come from one thread and wait a fraction of a second at most."""

    def __init__(self, environ: Mapping[str, str]) -> None:
        self._visible = visible_gpus(environ)
        self._reads: dict[tuple[int | str, ...] | None, _MemoryRead] = {}

    def used_bytes(self, gpus: Sequence[int | str] | None) -> int | None:
        """The sum over these GPUs (None: all visible ones); None where it is not known, or not known in time."""
        chosen = self._visible if gpus is None else gpus
        key = None if chosen is None else tuple(chosen)
        read = self._reads.setdefault(key, _MemoryRead(chosen))
        return read.value()


class _MemoryRead:
    """The last reading of one set of GPUs, renewed in a thread."""

    def __init__(self, gpus: Sequence[int | str] | None) -> None:
        self._reader: GpuReader | None = GpuReader(gpus)
        self._is_open = False
        self._value: int | None = None
        self._read_at = float("-inf")
        self._thread: threading.Thread | None = None

    def value(self) -> int | None:
        if self._reader is None:
            return None
        if time.monotonic() - self._read_at < _FRESH_S:
            return self._value
        if self._thread is None:
            self._thread = threading.Thread(target=self._read, daemon=True, name="gpu-memory")
            self._thread.start()
        self._thread.join(_PATIENCE_S)
        if self._thread.is_alive():
            return None
        self._thread = None
        return self._value

    def _read(self) -> None:
        reader = self._reader
        if reader is None:
            return
        try:
            if not self._is_open:
                reader.open()
                self._is_open = True
        except GpuUnavailable:
            self._reader = None  # no GPU here: nothing will ever be known
            return
        used = reader.memory_used_bytes().values()
        self._value = None if not used or None in used else sum(count for count in used if count is not None)
        self._read_at = time.monotonic()
