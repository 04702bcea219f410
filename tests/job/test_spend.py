"""The cap is never passed by a trillionth of a dollar, whatever fails, and what is left of it is less than one request."""

from __future__ import annotations

import heapq
import random

import pytest

from backend.job.spend import Spend, projected_usd

CAP_USD = 2.0


@pytest.mark.parametrize("seed", range(50))
def test_the_cap_is_never_passed_and_nothing_is_lost(seed: int) -> None:
    """200 streams in virtual time; answers, failures with and without a bill, and requests that are given back."""
    rng = random.Random(seed)
    spend = Spend(CAP_USD)
    waiting, finished, now, number, billed_for_sure = 4_000, 0, 0.0, 0, 0.0
    most_usd = 0.0
    flying: list[tuple[float, int, float]] = []
    worst_of_all = 0.0
    while waiting:
        worst = rng.uniform(50, 900) * 0.5e-6 + 4_000 * rng.choice((2e-6, 3e-6))
        if len(flying) < 200 and spend.reserve(number, worst):
            waiting -= 1
            worst_of_all = max(worst_of_all, worst)
            heapq.heappush(flying, (now + rng.expovariate(1 / 20), number, worst))
            number += 1
            continue
        if not flying:
            break
        now, key, reserved = heapq.heappop(flying)
        fate, bill = rng.random(), reserved * rng.random() ** 3
        if fate < 0.8:
            spend.settle(key, bill)
            finished, billed_for_sure = finished + 1, billed_for_sure + bill
        else:
            waiting += 1
            known = fate < 0.95
            most_usd += spend.settle(key, bill if known else 0.0, at_most_usd=None if known else reserved)
            billed_for_sure += bill if known else 0.0
        view = spend.view()
        assert view.spent_usd + view.unsure_usd + view.reserved_usd <= CAP_USD
        assert view.spent_usd + view.unsure_usd <= CAP_USD
    view = spend.view()
    assert not spend.fits(worst_of_all)
    assert view.spent_usd == pytest.approx(billed_for_sure, abs=1e-9)
    assert view.unsure_usd == pytest.approx(most_usd, abs=1e-9)
    assert CAP_USD - view.spent_usd - view.unsure_usd < 0.0125
    assert finished + waiting == 4_000
    assert (view.reserved_usd, spend.in_flight) == (0.0, 0)


def test_what_fits_exactly_is_allowed_and_a_trillionth_more_is_not() -> None:
    spend = Spend(0.3)
    assert spend.reserve("a", 0.1)
    assert spend.reserve("b", 0.1)
    assert not spend.reserve("c", 0.100000000002)
    assert spend.reserve("c", 0.1)
    assert not spend.fits(1e-12)


def test_sums_lose_nothing_over_a_million_bills() -> None:
    spend = Spend(None)
    for number in range(100_000):
        spend.reserve(number, 1e-6)
        spend.settle(number, 1e-6)
    assert spend.view().spent_usd == 0.1


def test_former_lives_count_against_the_cap() -> None:
    spend = Spend(1.0, spent_usd=0.6, unsure_usd=0.3)
    assert not spend.fits(0.2)
    assert spend.fits(0.1)


def test_at_the_cap_only_a_higher_one_helps() -> None:
    spend = Spend(1.0)
    spend.reserve("a", 0.9)
    spend.settle("a", 0.9)
    assert not spend.fits(0.5)
    spend.cap_usd = 2.0
    assert spend.fits(0.5)


def test_a_request_has_one_reservation() -> None:
    spend = Spend(1.0)
    spend.reserve("a", 0.1)
    with pytest.raises(ValueError, match="already"):
        spend.reserve("a", 0.1)


def test_the_rest_is_expected_to_cost_what_the_first_tokens_did() -> None:
    assert projected_usd(10.0, 1_000, 5_000) == 60.0
    assert projected_usd(0.0, 0, 5_000) is None
