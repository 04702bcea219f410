"""Who uses the GPUs, as the stand-in library tells."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest

from backend.job import gpu_use
from backend.job.gpu import GpuReader, GpuUnavailable
from backend.job.gpu_use import GpuHold, GpuMemory, read_gpu_holds
from tests.job.gpu_box import GIB, Box


def in_time(read: Callable[[], int | None]) -> int | None:
    """The value, asked for until it is there: opening NVML may take longer than one call waits."""
    deadline = time.monotonic() + 20
    while (value := read()) is None and time.monotonic() < deadline:
        time.sleep(0.05)
    return value


def test_memory_is_summed_over_the_gpus_asked_for(box: Box, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpu_use, "_FRESH_S", 0.0)
    box("count 2; 0.mem_used_gib 10; 1.mem_used_gib 4")
    memory = GpuMemory({})
    assert in_time(lambda: memory.used_bytes([1])) == 4 * GIB
    assert in_time(lambda: memory.used_bytes([0, 1])) == 14 * GIB
    box("count 2; 0.mem_used_gib 1; 1.mem_used_gib 2")
    assert in_time(lambda: memory.used_bytes([0, 1])) == 3 * GIB


def test_all_means_those_that_are_visible(box: Box) -> None:
    box("count 2; 0.mem_used_gib 10; 1.mem_used_gib 4")
    memory = GpuMemory({"CUDA_VISIBLE_DEVICES": "1"})
    assert in_time(lambda: memory.used_bytes(None)) == 4 * GIB


def test_without_a_driver_nothing_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HEADWAY_NVML_LIBRARY", "/nowhere/libnvidia-ml.so.1")
    assert GpuMemory({}).used_bytes(None) is None
    with pytest.raises(GpuUnavailable):
        read_gpu_holds(None)


def test_a_driver_that_hangs_delays_nobody(box: Box, monkeypatch: pytest.MonkeyPatch) -> None:
    def hang(self: GpuReader) -> dict[str, Any]:
        time.sleep(5)
        return {}

    monkeypatch.setattr(GpuReader, "memory_used_bytes", hang)
    memory = GpuMemory({})
    began = time.monotonic()
    assert memory.used_bytes([0]) is None
    assert memory.used_bytes([0]) is None
    assert time.monotonic() - began < 3


def test_who_computes_on_a_gpu_is_told(box: Box) -> None:
    box(f"count 2; 1.proc.4242 {30 * GIB}")
    holds = read_gpu_holds([1])
    assert [(hold.pid, hold.memory_used_bytes) for hold in holds] == [(4242, 30 * GIB)]
    assert holds[0].gpu.startswith("1")
    assert read_gpu_holds([0]) == []
    assert GpuHold("x", None, None) not in holds
