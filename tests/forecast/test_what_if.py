"""Observations as they would be, and what forecasts make of them."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from backend.forecast.forecast import forecast
from backend.forecast.observation import BudgetStop, Observation
from backend.forecast.what_if import (
    effects_of_caps,
    in_order,
    with_budget,
    with_cap,
    with_concurrency,
    with_replicas,
    with_samples,
    without,
)
from backend.records import DatasetState
from tests.forecast.made_observation import dataset, lengths, observation, steady

SLACK_S = 3.0  # how the last requests run out is reckoned in steps and averages


def middle(seen: Observation) -> float:
    found = forecast(seen).remaining
    assert found is not None
    return found.p50


@settings(max_examples=25, deadline=None)
@given(
    samples=st.lists(st.integers(0, 20_000), min_size=2, max_size=2).map(sorted),
    stop=st.sampled_from(list(BudgetStop)),
    budget=st.none() | st.integers(1, 8_000_000),
    overlap=st.booleans(),
)
def test_fewer_samples_are_never_later(samples: list[int], stop: BudgetStop, budget: int | None, overlap: bool) -> None:
    seen = observation(
        [dataset(prompts=20_000, token_budget=budget), dataset("B2", "waiting", prompts=20_000, token_budget=budget)],
        budget_stop=stop,
        overlap=overlap,
    )
    fewer, more = (middle(with_samples(seen, count)) for count in samples)
    assert fewer <= more * 1.001 + SLACK_S


@settings(max_examples=20, deadline=None)
@given(budgets=st.lists(st.integers(1, 20_000_000), min_size=2, max_size=2).map(sorted), stop=st.sampled_from(list(BudgetStop)))
def test_a_smaller_budget_is_never_later(budgets: list[int], stop: BudgetStop) -> None:
    seen = observation([dataset(prompts=20_000)], budget_stop=stop)
    smaller, larger = (middle(with_budget(seen, budget)) for budget in budgets)
    assert smaller <= larger * 1.001 + SLACK_S


def test_what_is_finished_or_in_flight_stays_however_few_samples_are_wanted() -> None:
    seen = with_samples(observation(), 10)
    assert seen.datasets[0].prompts == 2064
    assert middle(seen) > 0


def test_one_dataset_alone_can_be_changed() -> None:
    seen = with_budget(observation([dataset(), dataset("B2", "waiting")]), 5000, "B2")
    assert [each.token_budget for each in seen.datasets] == [None, 5000]


def test_a_cap_shortens_what_is_to_come_and_keeps_what_is_finished() -> None:
    seen = observation([dataset(finished_lengths=lengths(4000, mean=1500, log_sd=1.0), prompts=20_000)])
    cut = with_cap(seen, 2048)
    before, after = seen.datasets[0], cut.datasets[0]
    assert after.finished_samples == before.finished_samples
    assert after.finished_tokens == pytest.approx(before.finished_tokens)
    assert middle(cut) < 0.8 * middle(seen)


def test_the_effect_of_a_cap_is_that_of_cutting_the_lengths() -> None:
    true = lengths(20_000, mean=1500, log_sd=1.0)
    seen = observation([dataset(finished_lengths=true, prompts=50_000, max_new_tokens=32_768)])
    effect = effects_of_caps(seen, [2048])[0][0]
    assert effect.mean_tokens == pytest.approx(np.minimum(true, 2048).mean(), rel=0.02)
    assert effect.mean_tokens_now == pytest.approx(true.mean(), rel=0.03)
    assert effect.truncated_share == pytest.approx((true >= 2048).mean(), abs=0.01)
    assert effect.truncated_share_now < 0.01


def test_a_cap_above_the_one_there_is_changes_nothing() -> None:
    effect = effects_of_caps(observation(), [100_000])[0][0]
    assert (effect.mean_tokens, effect.truncated_share) == (effect.mean_tokens_now, effect.truncated_share_now)
    seen = observation()
    assert with_cap(seen, 100_000) == seen


def test_more_requests_at_a_time_are_faster_as_the_curve_says() -> None:
    low = observation(history=steady(370, running=8), concurrency=8)
    assert middle(low) / middle(with_concurrency(low, 32)) == pytest.approx(900 / 370, rel=0.15)


@pytest.mark.parametrize("curve", [None, ((1.0, 60.0), (8.0, 370.0), (32.0, 900.0), (64.0, 1000.0))])
def test_twice_the_replicas_take_half_the_time_at_full_efficiency(curve: tuple[tuple[float, float], ...] | None) -> None:
    seen = observation([dataset(prompts=100_000)], speed_curve=curve)
    assert middle(seen) / middle(with_replicas(seen, 2, 4)) == pytest.approx(2, rel=0.05)
    assert middle(seen) / middle(with_replicas(seen, 2, 4, 0.0)) == pytest.approx(1, rel=0.05)
    assert middle(seen) > middle(with_replicas(seen, 2, 4, 0.5)) > middle(with_replicas(seen, 2, 4))


def test_a_dropped_dataset_takes_no_time_and_keeps_what_is_finished() -> None:
    seen = observation([dataset(), dataset("B2", "waiting", prompts=5000)])
    dropped = without(seen, ["B2"])
    assert dropped.datasets[1].state is DatasetState.KILLED
    assert middle(dropped) < 0.8 * middle(seen)
    assert middle(dropped) == pytest.approx(middle(observation()), rel=0.05)


def test_another_order_moves_the_ends_of_datasets_and_hardly_that_of_the_run() -> None:
    seen = observation([dataset(), dataset("B2", "waiting", prompts=5000), dataset("B3", "waiting", prompts=500)], overlap=True)
    moved = in_order(seen, ["B1", "B3"])
    assert [each.name for each in moved.datasets] == ["B1", "B3", "B2"]
    assert middle(moved) == pytest.approx(middle(seen), rel=0.05)
    ends = {each.name: each.ends_in for each in forecast(moved).datasets}
    assert ends["B3"] is not None
    assert ends["B2"] is not None
    assert ends["B3"].p50 < ends["B2"].p50


def test_what_cannot_be_is_refused_with_words() -> None:
    with pytest.raises(ValueError, match="there is no dataset 'B9'; there are B1"):
        without(observation(), ["B9"])
    with pytest.raises(ValueError, match="at least 1"):
        with_concurrency(observation(), 0)
    with pytest.raises(ValueError, match="at least 1 token"):
        with_cap(observation(), 0)
    with pytest.raises(ValueError, match="replicas"):
        with_replicas(observation(), 2, 0)
