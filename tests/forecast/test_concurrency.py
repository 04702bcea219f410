"""Which concurrency is recommended, and what moves it."""

from __future__ import annotations

import pytest

from backend.forecast.concurrency import KvRoom, recommend, requests_that_fit, within_room
from backend.forecast.curve import knee
from backend.forecast.observation import Observation
from tests.forecast.made_observation import dataset, observation, steady

STORY = ((1.0, 62.0), (4.0, 207.0), (8.0, 370.0), (16.0, 385.0), (32.0, 393.0), (48.0, 409.0))


def running(prompts: int = 20_000, concurrency: int = 8, **more: object) -> Observation:
    """A run at a concurrency of 8 on the story's server."""
    in_flight = [300.0] * concurrency
    return observation(
        [dataset(prompts=prompts, in_flight_tokens=in_flight)],
        steady(370.0, running=concurrency),
        concurrency=concurrency,
        speed_curve=STORY,
        **more,
    )


def test_a_long_run_is_recommended_more_than_the_knee() -> None:
    found = recommend(running(), STORY)
    assert found is not None
    assert knee([(8, 370.0), (48, 409.0)]) == 8
    assert found.concurrency == 48
    ends = {option.concurrency: option.remaining.p50 for option in found.options}
    assert ends[48] < ends[16] < ends[8]
    assert min(ends) == 8
    assert {11, 23, 39} <= set(ends)  # the middles, on a scale of ratios


def test_a_run_that_is_nearly_over_is_recommended_no_more_than_it_can_use() -> None:
    found = recommend(running(prompts=2_020), STORY)
    assert found is not None
    assert found.concurrency < 48


def test_what_does_not_fit_into_the_kv_pool_is_not_recommended() -> None:
    seen = running()
    tight = KvRoom(capacity_tokens=20_000, prompt_tokens=700)
    fits = requests_that_fit(seen, tight)
    assert 16 <= fits <= 24

    found = recommend(seen, STORY, kv=tight)
    assert found is not None
    assert found.fits == fits
    assert found.concurrency <= 32
    assert found.options[-1].tokens_per_s < 393.0


def test_the_curve_ends_at_what_fits() -> None:
    assert within_room(STORY, None) == list(STORY)
    assert within_room(STORY, 48) == list(STORY)
    assert within_room(STORY, 12)[-1] == (12.0, pytest.approx(377.5))
    assert within_room(STORY, 8)[-1] == (8.0, 370.0)


def test_nothing_is_recommended_for_a_run_that_is_done() -> None:
    assert recommend(observation([dataset(state="done")], steady(370.0, running=8), concurrency=8), STORY) is None


def test_nothing_is_recommended_before_anything_can_be_forecast() -> None:
    assert recommend(running(), ()) is None
    nothing = observation([dataset(state="waiting")], steady(seconds=0.0), speed_curve=None)
    assert recommend(nothing, STORY) is None
