"""Slow loads and hung ones."""

from __future__ import annotations

from dataclasses import replace

import pytest

from backend.job.load_movement import LoadMovement, LoadSigns, has_moved
from backend.job.process_tree import ProcessMark

STILL = LoadSigns(100, 50 << 20, 1 << 30, 2 << 30, frozenset({ProcessMark(5, 1)}))


@pytest.mark.parametrize(
    "after",
    [
        replace(STILL, log_bytes=101),
        replace(STILL, io_bytes=52 << 20),
        replace(STILL, resident_bytes=2 << 30),
        replace(STILL, gpu_bytes=3 << 30),
        replace(STILL, processes=frozenset({ProcessMark(5, 1), ProcessMark(6, 2)})),
        replace(STILL, log_bytes=0),  # the log was cut
    ],
    ids=["log", "disk", "memory", "GPU memory", "a compiler", "log cut"],
)
def test_each_sign_counts_as_movement(after: LoadSigns) -> None:
    assert has_moved(STILL, after)


def test_trifles_and_the_unknown_do_not_count() -> None:
    assert not has_moved(STILL, STILL)
    assert not has_moved(STILL, replace(STILL, io_bytes=(50 << 20) + 4096, resident_bytes=(1 << 30) + 4096))
    assert not has_moved(STILL, replace(STILL, io_bytes=None, gpu_bytes=None, resident_bytes=None))


def test_slow_growth_adds_up() -> None:
    movement = LoadMovement(0.0)
    movement.look(STILL, 1.0)
    for second in range(2, 12):
        movement.look(replace(STILL, io_bytes=(50 << 20) + second * 100_000), float(second))
    assert movement.last_movement_at == 11.0
    movement.look(replace(STILL, io_bytes=(50 << 20) + 11 * 100_000), 60.0)
    assert movement.last_movement_at == 11.0
