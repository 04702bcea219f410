"""Two samples are told apart when they differ, and seldom when they do not."""

from __future__ import annotations

import random

import pytest

from backend.job.rank_test import p_value


def lengths(rng: random.Random, count: int, mean_log: float) -> list[float]:
    return [rng.lognormvariate(mean_log, 1.0) for _ in range(count)]


def test_a_known_example_comes_out_as_published() -> None:
    """Hollander and Wolfe, permeability of membranes: W = 35 with n = 5, m = 10; the normal approximation gives 0.2207."""
    term = [0.80, 0.83, 1.89, 1.04, 1.45, 1.38, 1.91, 1.64, 0.73, 1.46]
    early = [1.15, 0.88, 0.90, 0.74, 1.21]
    assert p_value([(early, term)]) == pytest.approx(0.2207, abs=0.0005)


def test_samples_drawn_alike_are_called_different_as_often_as_the_level_says() -> None:
    rng = random.Random(3)
    values = [p_value([(lengths(rng, 32, 6.0), lengths(rng, 200, 6.0))]) for _ in range(600)]
    assert 0.02 <= sum(value is not None and value < 0.05 for value in values) / 600 <= 0.08


def test_half_as_long_is_seen_with_64_prompts() -> None:
    rng = random.Random(4)
    found = [p_value([(lengths(rng, 64, 5.3), lengths(rng, 500, 6.0))]) for _ in range(50)]
    assert sum(value is not None and value < 0.05 for value in found) >= 48


def test_a_dataset_is_compared_with_itself_alone() -> None:
    """Prompts of a short and of a long dataset in other shares: together they would differ, each for itself they do not."""
    rng = random.Random(5)
    strata = [(lengths(rng, 40, 4.0), lengths(rng, 10, 4.0)), (lengths(rng, 10, 8.0), lengths(rng, 40, 8.0))]
    mixed = [([*strata[0][0], *strata[1][0]], [*strata[0][1], *strata[1][1]])]
    together, apart = p_value(mixed), p_value(strata)
    assert together is not None
    assert apart is not None
    assert together < 0.001
    assert apart > 0.05


def test_too_little_and_all_equal_tell_nothing() -> None:
    assert p_value([]) is None
    assert p_value([([1.0, 2.0], [3.0] * 50)]) is None
    assert p_value([([7.0] * 10, [7.0] * 10)]) is None
