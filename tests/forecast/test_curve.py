"""Speed by requests running, and the knee."""

from __future__ import annotations

import numpy as np
import pytest

from backend.forecast.curve import SpeedCurve, knee

STORY = [(1, 62.0), (4, 207.0), (8, 370.0), (16, 385.0), (32, 393.0), (48, 409.0)]


def test_the_knee_of_the_story_is_8() -> None:
    assert knee(STORY) == 8


def test_the_order_of_the_levels_does_not_matter() -> None:
    assert knee(STORY[::-1]) == 8


def test_a_sweep_without_a_speed_has_no_knee() -> None:
    assert knee([]) is None
    assert knee([(4, 0.0)]) is None


def test_between_levels_the_speed_is_on_a_straight_line_and_beyond_them_as_on_the_last() -> None:
    curve = SpeedCurve(STORY)
    assert curve.at(np.array([6.0, 48.0, 200.0])).tolist() == pytest.approx([288.5, 409, 409])


def test_few_requests_by_chance_take_as_long_as_a_count_of_chances_says() -> None:
    curve, mean = SpeedCurve(STORY), 2.5
    counts = np.random.default_rng(0).poisson(mean, 200_000).astype(float)
    sampled = np.where(counts > 0, counts / np.maximum(curve.at(counts), 1e-9), 0).mean()
    assert curve.seconds_per_token(np.array([mean]))[0] == pytest.approx(sampled, rel=0.01)
    assert curve.seconds_per_token(np.array([0.0]))[0] == 0
