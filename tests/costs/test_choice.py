"""The Pareto front, and the plan that holds a deadline at least cost."""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backend.costs.choice import cheapest_plan, pareto
from backend.costs.prices import Prices
from backend.costs.staying import Box
from backend.forecast.forecast import forecast
from backend.report.compare_notes import plan_sentence
from tests.costs.made_case import api, case
from tests.forecast.made_observation import dataset, observation, steady

POINTS = st.lists(st.tuples(st.floats(0, 1e6), st.decimals(0, 1000, places=2)), max_size=12)
HOUR_S = 3600.0


@given(POINTS)
def test_nothing_beats_the_front_and_each_other_point_is_beaten_by_it(points: list[tuple[float, Decimal]]) -> None:
    front = pareto(points)
    assert [points[i] for i in front] == sorted(points[i] for i in front)
    for i, (seconds, usd) in enumerate(points):
        beaten = any(a <= seconds and b <= usd and (a, b) != (seconds, usd) for a, b in points)
        equal = any(points[j] == (seconds, usd) for j in front)
        assert equal is not beaten
        assert i not in front or not beaten


def test_with_time_enough_all_stays_where_the_box_costs_nothing_more() -> None:
    plan = cheapest_plan(case(box=Box()), api(), 1000 * HOUR_S)
    assert plan is not None
    assert (plan.goes, plan.usd, plan.holds) == ((), 0, True)
    assert plan.stays == ("A", "B", "C")


def test_a_deadline_that_only_the_api_holds_sends_all() -> None:
    plan = cheapest_plan(case(), api(), 0.5 * HOUR_S)
    assert plan is not None
    assert plan.holds
    assert set(plan.goes) >= {"A", "B"}


def test_in_between_part_of_it_goes_and_the_rest_stays() -> None:
    now = case(box=Box())
    whole = forecast(now.observation).remaining
    assert whole is not None
    plan = cheapest_plan(now, api(), whole.p90 * 0.7)
    assert plan is not None
    assert plan.holds
    assert plan.goes
    assert plan.stays
    assert plan.seconds is not None
    assert plan.seconds.p90 <= whole.p90 * 0.7


def test_a_longer_deadline_never_costs_more() -> None:
    now = case()
    costs = []
    for hours in (0.5, 1, 2, 4, 8, 16):
        plan = cheapest_plan(now, api(), hours * HOUR_S)
        assert plan is not None
        assert plan.holds
        assert plan.usd is not None
        costs.append(plan.usd)
    assert costs == sorted(costs, reverse=True)


def test_a_dear_box_sends_all_whatever_the_deadline() -> None:
    plan = cheapest_plan(case(box=Box(gpus=8, gpu_hour_usd=Decimal(1000))), api(), 1000 * HOUR_S)
    assert plan is not None
    assert plan.stays == ()


def test_where_nothing_holds_the_soonest_is_told_as_not_holding() -> None:
    plan = cheapest_plan(case(), api(), 1.0)
    assert plan is not None
    assert not plan.holds
    assert plan.seconds is not None
    assert plan.seconds.p90 > 1.0
    assert plan.goes


def test_where_nothing_holds_and_the_box_is_sooner_all_stays() -> None:
    plan = cheapest_plan(case(), api(speed=0.5, streams=2), 1.0)
    assert plan is not None
    assert (plan.goes, plan.holds) == ((), False)
    assert plan_sentence(plan, 60.0).startswith("No way holds 60 s 9 times of 10. The soonest: all of it stays here, done in ")


def test_without_prices_a_plan_says_who_goes_and_not_what_it_costs() -> None:
    plan = cheapest_plan(case(), api(prices=Prices()), 0.5 * HOUR_S)
    assert plan is not None
    assert plan.goes
    assert plan.usd is None


def test_where_no_speed_of_the_box_is_known_all_that_waits_goes() -> None:
    fresh = observation([dataset("A", state="waiting")], steady(seconds=0), speed_curve=None)
    plan = cheapest_plan(replace(case(), observation=fresh), api(), 10 * HOUR_S)
    assert plan is not None
    assert (plan.goes, plan.holds) == (("A",), True)


def test_many_datasets_are_planned_without_looking_at_every_combination() -> None:
    many = [dataset("A"), *(dataset(f"B{i:02d}", state="waiting", prompts=1000) for i in range(30))]
    now = case(many, box=Box())
    whole = forecast(now.observation).remaining
    assert whole is not None
    plan = cheapest_plan(now, api(), whole.p50)
    assert plan is not None
    assert plan.holds
    assert 0 < len(plan.goes) < 31


def test_nothing_that_waits_is_no_plan() -> None:
    assert cheapest_plan(case([dataset("A", state="done")]), api(), 60.0) is None


@pytest.mark.parametrize("hours", [0.5, 4, 40])
def test_what_goes_and_what_stays_is_all_that_waits(hours: float) -> None:
    plan = cheapest_plan(case(), api(), hours * HOUR_S)
    assert plan is not None
    assert sorted(plan.goes + plan.stays) == ["A", "B", "C"]
