"""Guards: bad datasets are held within the first samples, good ones are not held by chance or by the order of finishing."""

from __future__ import annotations

import math
import random
import time

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from backend.holds import GuardKind
from backend.job.guard import Finding, Guard
from backend.job.mean_guard import LEAST, MeanGuard
from backend.job.share_guard import ShareGuard
from tests.job.guarded_slots import NaiveRule, run_slots

LIMIT = 0.2


class InOrder:
    """A guard of bad answers for `run_slots`."""

    def __init__(self) -> None:
        self.guard = Guard({GuardKind.BAD: LIMIT})
        self.found: Finding | None = None

    def started(self, number: int) -> None:
        self.guard.started(number)

    def finished(self, number: int, bad: bool) -> bool:
        self.found = self.guard.finished(number, {GuardKind.BAD} if bad else (), 6 if bad else 2_000)
        return self.found is not None


def held(rule: InOrder | NaiveRule, bad_share: float, seed: int, *, samples: int = 10_000, in_flight: int = 150) -> bool:
    found = run_slots(
        rule.started, rule.finished, bad_share=bad_share, samples=samples, in_flight=in_flight, seed=seed
    )  # fmt: skip
    return found is not None


def started_until_held(bad_share: float, seed: int, in_flight: int) -> int:
    rule = InOrder()
    found = run_slots(rule.started, rule.finished, bad_share=bad_share, samples=2_000, in_flight=in_flight, seed=seed)
    assert rule.found is not None
    assert rule.found.kind is GuardKind.BAD
    assert rule.found.measured > LIMIT
    return rule.found.judged if found else 2_001


@pytest.mark.parametrize("in_flight", [16, 150])
def test_a_dataset_of_which_87_percent_are_bad_is_held_within_its_pilot_or_forty_samples(in_flight: int) -> None:
    needed = [started_until_held(0.87, seed, in_flight) for seed in range(200)]
    assert max(needed) <= 40
    assert sum(n <= 16 for n in needed) >= 190


def test_with_15_percent_bad_hardly_a_run_of_ten_thousand_is_held_where_the_naive_rule_holds_nearly_all() -> None:
    assert sum(held(InOrder(), 0.15, seed) for seed in range(12)) == 0
    assert sum(held(NaiveRule(LIMIT), 0.15, seed) for seed in range(12)) == 12
    assert sum(held(NaiveRule(LIMIT), 0.10, seed) for seed in range(12)) >= 10
    # The same of many more runs: what a guard sees at any moment is at most what the whole truth says (next test but one).
    rng = np.random.default_rng(7)
    assert sum(ShareGuard(LIMIT).excess(rng.random(10_000) < 0.15) is not None for _ in range(600)) <= 1


@pytest.mark.drill
def test_with_15_percent_bad_less_than_one_run_of_a_hundred_is_held() -> None:
    assert sum(held(InOrder(), 0.15, seed) for seed in range(400)) == 0


@given(
    limit=st.sampled_from([0.0, 0.02, 0.2, 0.6]),
    truth=st.lists(st.booleans(), min_size=1, max_size=80),
    in_flight=st.integers(1, 60),
    rng=st.randoms(use_true_random=False),
)
@settings(max_examples=150, deadline=None)
def test_in_whatever_order_they_finish_nothing_is_found_that_the_whole_truth_does_not_say(
    limit: float, truth: list[bool], in_flight: int, rng: random.Random
) -> None:
    guard, running, found = Guard({GuardKind.BAD: limit}), list[int](), False
    for number in range(len(truth)):
        guard.started(number)
        running.append(number)
        while len(running) >= in_flight or (number == len(truth) - 1 and running):
            done = running.pop(rng.randrange(len(running)))
            found = guard.finished(done, {GuardKind.BAD} if truth[done] else (), None) is not None or found
    whole = ShareGuard(limit).excess(np.array(truth)) is not None
    assert not found or whole
    if in_flight == 1:  # then it saw every prefix
        assert found == whole


def test_a_share_a_little_above_its_limit_is_found_in_time_and_one_far_above_sooner() -> None:
    rng = np.random.default_rng(1)
    for share, within in ((0.3, 1_500), (0.5, 150), (1.0, 12)):
        for _ in range(20):
            excess = ShareGuard(LIMIT).excess(rng.random(within) < share)
            assert excess is not None
            assert excess.share > LIMIT


def test_a_dataset_that_turns_bad_late_is_held_soon_and_the_words_are_of_the_late_ones() -> None:
    guard, rng = Guard({GuardKind.BAD: LIMIT}), random.Random(3)
    for number in range(20_000):
        guard.started(number)
        assert guard.finished(number, {GuardKind.BAD} if rng.random() < 0.05 else (), 500) is None
    for number in range(20_000, 20_100):
        guard.started(number)
        found = guard.finished(number, {GuardKind.BAD} if rng.random() < 0.87 else (), 500)
        if found is not None:
            break
    assert found is not None
    assert found.lately
    assert found.judged <= 40
    assert found.measured > 0.6


def test_what_is_aborted_keeps_its_place_and_counts_as_not_bad() -> None:
    guard = Guard({GuardKind.BAD: LIMIT})
    for number in range(150):
        guard.started(number)
    for number in range(0, 150, 8):  # every eighth is empty and returns at once; then all others are aborted
        assert guard.finished(number, {GuardKind.BAD}, 6) is None
    for number in range(150):
        guard.started(number)  # again, in whatever order
    assert guard.judged == 150 + 19  # those that had finished are new samples
    for number in range(1, 150, 8):
        assert guard.finished(number, (), 900) is None


def test_a_limit_of_nothing_holds_at_the_first_one_and_a_limit_of_all_never() -> None:
    strict, lax = Guard({GuardKind.REJECTED: 0.0}), Guard({GuardKind.REJECTED: 1.0})
    for number in range(500):
        strict.started(number)
        lax.started(number)
        assert lax.finished(number, {GuardKind.REJECTED}, None) is None
    assert strict.finished(3, (), 5) is None
    found = strict.finished(400, {GuardKind.REJECTED}, None)
    assert found is not None
    assert (found.kind, found.hits) == (GuardKind.REJECTED, 1)


def test_a_sample_that_was_not_started_here_is_passed_over() -> None:
    assert Guard({GuardKind.BAD: 0.0}).finished("x", {GuardKind.BAD}, 5) is None


def test_a_new_limit_begins_anew() -> None:
    guard, number, found = Guard({GuardKind.BAD: LIMIT}), 0, None
    while found is None:
        guard.started(number)
        found = guard.finished(number, {GuardKind.BAD}, 6)
        number += 1
    guard.set_limit(GuardKind.BAD, 0.95)
    rng = random.Random(1)
    for later in range(number, number + 5_000):
        guard.started(later)
        assert guard.finished(later, {GuardKind.BAD} if rng.random() < 0.87 else (), 6) is None
    guard.set_limit(GuardKind.BAD, 1.0)
    for later in range(10_000, 11_000):
        guard.started(later)
        assert guard.finished(later, {GuardKind.BAD}, 6) is None


def test_truncated_and_rejected_ones_have_limits_of_their_own() -> None:
    guard = Guard({GuardKind.BAD: LIMIT, GuardKind.TRUNCATED: 0.5, GuardKind.REJECTED: 0.5})
    for number in range(60):
        guard.started(number)
        kinds = {GuardKind.TRUNCATED} if number % 3 else {GuardKind.REJECTED} if number % 2 else ()
        found = guard.finished(number, kinds, 100)
    for number in range(60, 200):
        guard.started(number)
        found = guard.finished(number, {GuardKind.TRUNCATED}, 100)
        if found:
            break
    assert found is not None
    assert found.kind is GuardKind.TRUNCATED


def lengths(mean: float, seed: int, count: int) -> list[int]:
    rng = random.Random(seed)
    return [round(rng.lognormvariate(math.log(mean) - 0.5, 1.0)) for _ in range(count)]


def found_at(guard: MeanGuard, tokens: list[int]) -> int | None:
    for place, one in enumerate(tokens, 1):
        if (outside := guard.settle(one)) is not None:
            assert outside.short == (outside.mean_tokens < (guard.lower_tokens or 0))
            return place
    return None


def test_a_mean_outside_its_limits_is_found_and_one_within_is_let_through() -> None:
    for seed in range(60):
        short = found_at(MeanGuard(1_000, None), lengths(200, seed, 200))
        assert short is not None
        assert short >= LEAST
        assert found_at(MeanGuard(None, 1_000), lengths(4_000, seed, 400)) is not None
        assert found_at(MeanGuard(1_000, 4_000), lengths(2_000, seed, 3_000)) is None


def test_a_mean_that_drifts_is_found_after_many_good_ones() -> None:
    place = found_at(MeanGuard(1_000, None), lengths(2_000, 1, 10_000) + lengths(300, 2, 4_000))
    assert place is not None
    assert 10_000 < place <= 12_500


def test_the_mean_is_judged_only_as_far_as_all_before_are_finished() -> None:
    guard = Guard({GuardKind.SHORT: 1_000.0})
    for number in range(150):
        guard.started(number)
    for number in range(1, 150):
        assert guard.finished(number, (), 10) is None  # the first one is still being made
    found = guard.finished(0, (), 10)
    assert found is not None
    assert (found.kind, found.limit, found.hits) == (GuardKind.SHORT, 1_000.0, None)


def test_judging_costs_little_with_thousands_in_flight() -> None:
    guard = Guard({GuardKind.BAD: LIMIT, GuardKind.TRUNCATED: 0.9, GuardKind.REJECTED: 0.5})
    rng, running = random.Random(1), list[int]()
    began, done = time.thread_time(), 0
    for number in range(12_000):
        guard.started(number)
        running.append(number)
        if len(running) > 2_000:
            guard.finished(running.pop(rng.randrange(2_000)), {GuardKind.BAD} if rng.random() < 0.15 else (), 900)
            done += 1
    assert (time.thread_time() - began) / done < 0.000_4  # about 8 µs on a quiet core
