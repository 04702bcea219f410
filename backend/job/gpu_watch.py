"""Reads the GPUs from the event loop, patient with a driver that hangs: telemetry goes on without them until it answers.

What is read is `gpu.py`'s. Each read runs on a daemon thread, so that one that never comes back does not keep the process
from ending either, and there is never a second one while it hangs.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from typing import Final

from backend.job.alarms import Alarms
from backend.job.gpu import GpuReader, GpuUnavailable
from backend.records import Event
from backend.telemetry import GpuSample

TIMEOUT_S: Final = 3.0


class GpuWatch:
    """One reader and the thread that it is on, if any. Belongs to the event loop."""

    def __init__(self, reader: GpuReader, emit: Callable[[Event], None], *, timeout_s: float | None = None) -> None:
        """`emit` hears of GPUs that are lost or back, of a driver that hangs, and of one that is not there."""
        self._reader = reader
        self._emit = emit
        self._timeout_s = TIMEOUT_S if timeout_s is None else timeout_s
        self._alarms = Alarms()
        self._reading: asyncio.Future[list[GpuSample]] | None = None
        self._is_open = False
        self._is_absent = False

    async def read(self, now: float) -> list[GpuSample]:
        """A sample of each GPU at `now` (epoch seconds); none while the driver hangs, or where there is none."""
        if self._is_absent:
            return []
        hung = self._reading is not None
        reading = self._reading = self._reading or self._begin(now)
        await asyncio.wait({reading}, timeout=0 if hung else self._timeout_s)
        words = f"The NVIDIA driver has not answered for {self._timeout_s:g} s: GPUs are not measured until it does."
        problem = None if reading.done() else words
        for event in self._alarms.update(time.time(), "gpu.hung", "gpu", problem, over="The NVIDIA driver answers again."):
            self._emit(event)
        if not reading.done():
            return []
        self._reading = None
        try:
            samples = reading.result()
        except GpuUnavailable as error:
            self._is_absent = True
            self._emit(Event(time.time(), "gpu.unavailable", "gpu", f"GPUs are not measured: {error}"))
            return []
        for event in self._reader.take_events():
            self._emit(event)
        return [] if hung else samples  # what comes late is of another second

    def close(self) -> None:
        """Lets go of the GPU library, unless it hangs."""
        if self._reading is None:
            self._reader.close()

    def _begin(self, now: float) -> asyncio.Future[list[GpuSample]]:
        answer: Future[list[GpuSample]] = Future()
        threading.Thread(target=self._ask, args=(now, answer), name="gpu", daemon=True).start()
        return asyncio.wrap_future(answer)

    def _ask(self, now: float, answer: Future[list[GpuSample]]) -> None:
        try:
            if not self._is_open:
                self._reader.open()
                self._is_open = True
            answer.set_result(self._reader.read(now))
        except Exception as error:  # noqa: BLE001  (top of the thread: whoever waits is told)
            answer.set_exception(error)
