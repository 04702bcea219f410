"""How long completions are, learnt while most of them are still in flight."""

from __future__ import annotations

import math

import numpy as np
import pytest

from backend.forecast.lengths import LengthDraws
from backend.forecast.observation import DatasetNow, count_dataset
from backend.forecast.resemblance import draw_all
from backend.records import DatasetState
from tests.forecast.made_observation import dataset, lengths


def draws_of(*datasets: DatasetNow) -> tuple[LengthDraws, ...]:
    return draw_all(datasets, 200, seed=3)


def started_together(true: np.ndarray, tokens_each: float, cap: int = 32_768) -> DatasetNow:
    """All requests began at once and have made so many tokens, or ended before."""
    ended = true[true <= tokens_each]
    running = [tokens_each] * int((true > tokens_each).sum())
    return count_dataset(
        "B1",
        DatasetState.RUNNING,
        prompts=10_000,
        token_budget=None,
        max_new_tokens=cap,
        finished_lengths=ended,
        in_flight_tokens=running,
    )


@pytest.mark.parametrize("share", [0.25, 0.5, 0.75])
def test_requests_in_flight_count_as_at_least_this_long(share: float) -> None:
    true = lengths(200, mean=1500, log_sd=0.6)
    seen = started_together(true, float(np.quantile(true, share)))
    mean = float(np.median(draws_of(seen)[0].mean))
    naive = seen.finished_tokens / seen.finished_samples
    assert abs(math.log(mean / true.mean())) < abs(math.log(naive / true.mean()))
    low, high = np.quantile(draws_of(seen)[0].mean, (0.02, 0.98))
    assert low < true.mean() < high


def test_many_finished_samples_leave_little_doubt() -> None:
    true = lengths(20_000, mean=700)
    seen = dataset(finished_lengths=true, prompts=30_000)
    assert np.quantile(draws_of(seen)[0].mean, (0.1, 0.5, 0.9)) == pytest.approx(true.mean(), rel=0.02)


def test_two_kinds_of_answers_are_both_found() -> None:
    true = np.concatenate([lengths(3000, mean=40, log_sd=0.3), lengths(3000, mean=3000, log_sd=0.3, seed=2)])
    found = draws_of(dataset(finished_lengths=true, in_flight_tokens=[]))[0]
    assert np.median(found.mean) == pytest.approx(true.mean(), rel=0.05)


def test_a_quarter_of_completions_at_the_cap_is_found() -> None:
    true = np.minimum(np.concatenate([lengths(3000, mean=600), np.full(1000, 9e9)]), 8192)
    seen = dataset(finished_lengths=true, in_flight_tokens=[])
    assert seen.finished_at_cap == 1000
    assert np.median(draws_of(seen)[0].mean) == pytest.approx(true.mean(), rel=0.05)


def test_no_length_is_beyond_the_cap() -> None:
    found = draws_of(dataset(finished_lengths=[], in_flight_tokens=[1999.0] * 50, max_new_tokens=2000))[0]
    assert found.mean.max() <= 2000
    assert found.mean_beyond.max() <= 2000


def test_a_dataset_that_has_not_begun_resembles_the_others_with_more_doubt() -> None:
    known = dataset("B1", finished_lengths=lengths(5000, mean=900), in_flight_tokens=[])
    also = dataset("B2", finished_lengths=lengths(5000, mean=1000, seed=4), in_flight_tokens=[])
    unseen = dataset("B3", "waiting")
    one, _, three = (np.log(found.mean) for found in draws_of(known, also, unseen))
    assert three.std() > 5 * one.std()
    assert abs(np.median(three) - math.log(950)) < 0.3


def test_a_pilot_of_16_samples_removes_most_of_the_doubt_about_a_waiting_dataset() -> None:
    known = dataset("B1", finished_lengths=lengths(5000, mean=900), in_flight_tokens=[])
    pilot = dataset("B2", "waiting", finished_lengths=lengths(16, mean=200))
    unseen = dataset("B2", "waiting")
    with_pilot, without = (np.log(draws_of(known, second)[1].mean) for second in (pilot, unseen))
    assert with_pilot.std() < without.std() / 2
    assert abs(np.median(with_pilot) - math.log(200)) < 0.4


def test_the_same_seed_draws_the_same() -> None:
    first, second = draws_of(dataset()), draws_of(dataset())
    assert np.array_equal(first[0].survival, second[0].survival)
