"""GPUs are read with patience: one read at a time, never waited for longer than the limit."""

from __future__ import annotations

import asyncio
import threading
import time
from typing import Any

import pytest

from backend.job.gpu import GpuUnavailable
from backend.job.gpu_watch import GpuWatch
from backend.records import Event
from backend.telemetry import GpuSample


class FakeReader:
    """Answers once `works` is set."""

    def __init__(self) -> None:
        self.works = threading.Event()
        self.reads = 0
        self.opened = 0
        self.closed = False
        self.absent: str | None = None
        self.events: list[Event] = []

    def open(self) -> None:
        self.opened += 1
        if self.absent is not None:
            raise GpuUnavailable(self.absent)

    def read(self, now: float) -> list[GpuSample]:
        self.reads += 1
        assert self.works.wait(20)
        return [GpuSample(key="GPU-1", at=now)]

    def take_events(self) -> list[Event]:
        taken, self.events = self.events, []
        return taken

    def close(self) -> None:
        self.closed = True


@pytest.fixture
def reader() -> FakeReader:
    return FakeReader()


def make_watch(reader: Any, events: list[Event], timeout_s: float = 0.05) -> GpuWatch:
    return GpuWatch(reader, events.append, timeout_s=timeout_s)


async def test_gpus_that_answer_are_read_each_time_and_opened_once(reader: FakeReader) -> None:
    reader.works.set()
    reader.events = [Event(1.0, "gpu.lost", "gpu:0", "lost")]
    events: list[Event] = []
    watch = make_watch(reader, events, timeout_s=20)
    assert [sample.at for sample in await watch.read(1.0)] == [1.0]
    assert [sample.at for sample in await watch.read(2.0)] == [2.0]
    assert (reader.opened, reader.reads) == (1, 2)
    assert [event.kind for event in events] == ["gpu.lost"]
    watch.close()
    assert reader.closed


async def test_a_read_that_hangs_is_told_once_and_never_doubled(reader: FakeReader) -> None:
    events: list[Event] = []
    watch = make_watch(reader, events)
    assert await watch.read(1.0) == []
    began = time.monotonic()
    assert [await watch.read(float(second)) for second in range(2, 30)] == [[]] * 28
    assert time.monotonic() - began < 1  # the limit is waited for once, not each second
    assert reader.reads == 1
    assert [event.kind for event in events] == ["gpu.hung"]
    watch.close()
    assert not reader.closed  # closing would hang as well

    reader.works.set()
    deadline = time.monotonic() + 10
    while not (samples := await watch.read(31.0)):
        assert time.monotonic() < deadline
        await asyncio.sleep(0.01)
    assert [sample.at for sample in samples] == [31.0]  # not the old one, which came late
    assert [event.kind for event in events] == ["gpu.hung", "gpu.hung.over"]


async def test_without_a_driver_it_is_said_once_and_not_asked_again(reader: FakeReader) -> None:
    reader.absent = "There is no NVIDIA driver here."
    events: list[Event] = []
    watch = make_watch(reader, events, timeout_s=20)
    assert [await watch.read(1.0), await watch.read(2.0)] == [[], []]
    assert [(event.kind, event.message) for event in events] == [
        ("gpu.unavailable", "GPUs are not measured: There is no NVIDIA driver here.")
    ]
    assert reader.opened == 1
