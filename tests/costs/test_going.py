"""How long an API takes, against a simulation request by request."""

from __future__ import annotations

import heapq

import numpy as np
import pytest

from backend.costs.going import draw_going
from backend.costs.limits import ApiLimits, Binding, StreamSpeed
from backend.costs.waiting import Waiting, what_waits
from backend.forecast.observation import EDGES_TOKENS
from tests.forecast.made_observation import dataset, lengths, observation


def made_of(one: Waiting, k: int, rng: np.random.Generator) -> np.ndarray:
    """Lengths as the k-th draw of the distribution makes them."""
    survival = one.lengths.survival[k]
    return np.interp(-rng.random(round(float(one.requests[k]))), -survival, EDGES_TOKENS).clip(1, one.lengths.cap_tokens)


def simulate(made: np.ndarray, streams: int, tokens_per_s: float) -> float:
    """Seconds until all are done, the next request being asked for as one ends."""
    ends = [0.0] * min(streams, len(made))
    for tokens in made.tolist():
        heapq.heappush(ends, heapq.heappop(ends) + tokens / tokens_per_s)
    return max(ends)


def waiting(prompts: int) -> Waiting:
    """So many requests of lengths that are well known."""
    known = dataset("A", prompts=20_000 + prompts, finished_lengths=lengths(20_000, log_sd=0.8), in_flight_tokens=[])
    (found,) = what_waits(observation([known]))
    return found


@pytest.mark.parametrize(("prompts", "streams"), [(20_000, 600), (20_000, 64), (3000, 600), (1000, 600), (400, 600), (50, 600)])
def test_the_middle_is_what_a_simulation_takes_tail_included(prompts: int, streams: int) -> None:
    one, rng = waiting(prompts), np.random.default_rng(5)
    made = [simulate(made_of(one, k, rng), streams, 50.0) for k in range(0, 200, 1 if prompts <= 1000 else 5)]
    going = draw_going([one], ApiLimits(streams), StreamSpeed(50.0, 0.0), {})
    assert float(np.median(going.end_s)) == pytest.approx(float(np.median(made)), rel=0.12)
    spread = [float(np.quantile(times, 0.9) / np.quantile(times, 0.1)) for times in (going.end_s, made)]
    assert spread[0] == pytest.approx(spread[1], rel=0.3)


def test_the_story_takes_33_minutes_and_the_time_of_its_longest_answers() -> None:
    prompts = 120_000  # of 500 tokens: 60M
    going = draw_going([waiting(prompts)], ApiLimits(606), StreamSpeed(50.0, 0.0), {})
    assert float(np.median(going.tokens)) == pytest.approx(60e6, rel=0.02)
    assert float(np.median(going.end_s)) / 60 == pytest.approx(33 + 2, abs=2)
    assert going.binds is Binding.STREAMS


def test_where_all_fits_in_at_once_the_longest_answer_binds_and_more_streams_win_nothing() -> None:
    few = waiting(200)
    once, more = (draw_going([few], ApiLimits(n), StreamSpeed(50.0, 0.0), {}) for n in (1000, 100_000))
    assert once.binds is more.binds is Binding.LONGEST
    assert np.median(once.end_s) == pytest.approx(np.median(more.end_s))
    assert np.median(once.end_s) > 5 * 500 / 50  # far longer than a mean answer


@pytest.mark.parametrize(("limits", "binds"), [
    (ApiLimits(600, requests_per_minute=600), Binding.REQUESTS), (ApiLimits(600, tokens_per_minute=400_000), Binding.TOKENS),
])  # fmt: skip
def test_a_limit_by_the_minute_is_never_beaten(limits: ApiLimits, binds: Binding) -> None:
    going = draw_going([waiting(10_000)], limits, StreamSpeed(50.0, 0.3), {"A": 300.0})
    minutes = going.end_s / 60
    assert going.binds is binds
    assert np.all(10_000 / minutes <= (limits.requests_per_minute or np.inf) * 1.0001)
    assert np.all((going.tokens + 10_000 * 300) / minutes <= (limits.tokens_per_minute or np.inf) * 1.0001)


def test_datasets_one_after_the_other_take_about_as_long_as_one_of_all_their_requests() -> None:
    limits, speed = ApiLimits(600), StreamSpeed(50.0, 0.0)
    parts = [waiting(4000) for _ in range(3)]
    named = [Waiting(name, one.requests, one.tokens, one.lengths) for name, one in zip("ABC", parts, strict=True)]
    together = draw_going(named, limits, speed, {})
    assert float(np.median(together.end_s)) == pytest.approx(
        float(np.median(draw_going([waiting(12_000)], limits, speed, {}).end_s)), rel=0.05
    )


def test_faster_streams_never_take_longer() -> None:
    one = waiting(5000)
    slow, fast = (draw_going([one], ApiLimits(300), StreamSpeed(s, 0.2), {}) for s in (40.0, 80.0))
    assert np.all(fast.end_s <= slow.end_s)
