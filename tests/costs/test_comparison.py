"""Box against API: the same work, honestly priced; what is unknown stays unknown."""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal

import pytest

from backend.costs.case import Api, Texts
from backend.costs.comparison import Comparison, compare
from backend.costs.limits import ApiLimits, Binding, StreamSpeed
from backend.costs.prices import Price, Prices
from backend.costs.staying import Box, UsdRange
from backend.forecast.forecast import forecast
from tests.costs.made_case import api, case, priced
from tests.forecast.made_observation import dataset, lengths, observation, steady


def compared(*apis: Api, **more: object) -> Comparison:
    found = compare(case(**more), apis)  # type: ignore[arg-type]
    assert found is not None
    return found


def usd(found: UsdRange | None) -> tuple[float, float, float]:
    assert found is not None
    return float(found.p10), float(found.p50), float(found.p90)


def test_the_story_60m_tokens_cost_86_dollars_in_33_minutes_at_606_streams() -> None:
    known = dataset("B", prompts=140_000, finished_lengths=lengths(20_000), in_flight_tokens=[])
    output_only = Prices(Price(Decimal(0), "x"), output_per_mtok=Price(Decimal("1.43"), "x"))
    story = Api("story", "m", output_only, ApiLimits(606), StreamSpeed(50.0, 0.0))
    found = compared(story, datasets=[known])
    whole = found.ways[0].whole
    assert found.tokens.p50 == pytest.approx(60e6, rel=0.02)
    assert usd(whole.usd)[1] == pytest.approx(85.8, rel=0.02)
    assert whole.seconds is not None
    assert whole.tokens_per_s is not None
    assert whole.seconds.p50 / 60 == pytest.approx(33 + 1, abs=1.5)  # the last answers run on alone
    assert whole.tokens_per_s.p50 == pytest.approx(30_300, rel=0.05)
    assert whole.binds is Binding.STREAMS


def test_staying_costs_the_box_until_the_forecasts_ends() -> None:
    found = compared()
    here = forecast(case().observation).remaining
    assert here is not None
    assert found.local.seconds == here
    assert usd(found.local.usd) == pytest.approx(tuple(4 * s / 3600 for s in (here.p10, here.p50, here.p90)))


def test_the_datasets_money_on_the_box_is_no_more_than_the_whole() -> None:
    found = compared()
    parts = [usd(one.usd)[1] for one in found.local_datasets.values()]
    assert sum(parts) == pytest.approx(usd(found.local.usd)[1], rel=0.1)
    assert list(found.local_datasets) == ["A", "B", "C"]


def test_the_whole_at_an_api_costs_what_its_datasets_do() -> None:
    (way,) = compared(api()).ways
    assert sum(usd(one.usd)[1] for one in way.datasets.values()) == pytest.approx(usd(way.whole.usd)[1], rel=0.05)
    assert all(one.seconds is not None and way.whole.seconds is not None for one in way.datasets.values())


def test_prompts_are_paid_for_as_well() -> None:
    free = compared(api(prices=priced("0", "1.43"))).ways[0].whole.usd
    dear = compared(api(prices=priced("10", "1.43"))).ways[0].whole.usd
    assert usd(dear)[1] - usd(free)[1] == pytest.approx((7936 + 10_000 + 200) * 200 * 10 / 1e6, rel=0.02)


@pytest.mark.parametrize("prices", [Prices(), Prices(input_per_mtok=Price(Decimal(1), "x"))])
def test_an_unknown_price_is_an_unknown_cost_with_a_known_time(prices: Prices) -> None:
    (way,) = compared(api(prices=prices)).ways
    assert (way.whole.usd, way.break_even_gpu_hour_usd, way.point) == (None, None, None)
    assert way.whole.seconds is not None


def test_prompts_of_unknown_length_make_the_cost_unknown_unless_input_is_free() -> None:
    paid, free = compared(api(), api(prices=priced("0", "1")), prompt_tokens=None).ways
    assert paid.whole.usd is None
    assert free.whole.usd is not None


def test_at_the_break_even_price_both_sides_cost_the_same() -> None:
    quiet = [dataset("A", in_flight_tokens=[])]
    (way,) = compared(api(), datasets=quiet).ways
    even = compared(api(), datasets=quiet, box=Box(gpus=4, gpu_hour_usd=way.break_even_gpu_hour_usd))
    assert usd(even.local.usd)[1] == pytest.approx(usd(way.whole.usd)[1])


def test_the_datasets_break_even_prices_lie_about_the_wholes() -> None:
    (way,) = compared(api()).ways
    each = [price for price in way.dataset_break_even_usd.values() if price is not None]
    assert len(each) == 3
    assert way.break_even_gpu_hour_usd is not None
    assert min(each) * Decimal("0.8") <= way.break_even_gpu_hour_usd <= max(each) * Decimal("1.3")


def test_who_goes_still_waits_for_what_is_in_flight_here() -> None:
    slow = [dataset("A", prompts=2100, in_flight_tokens=[10.0] * 64)]
    found = compared(api(speed=1e6), datasets=slow)
    assert found.finishing is not None
    assert found.finishing.seconds is not None
    assert found.ways[0].whole.seconds is not None
    assert found.ways[0].whole.seconds.p50 >= found.finishing.seconds.p50 > 0


def test_without_a_speed_of_the_box_the_api_side_is_told_all_the_same() -> None:
    fresh = observation([dataset("A", state="waiting")], steady(seconds=0), speed_curve=None)
    found = compare(replace(case(), observation=fresh), [api()])
    assert found is not None
    assert found.local.seconds is None
    assert found.why_no_local is not None
    assert "no speed is known" in found.why_no_local
    assert found.ways[0].whole.seconds is not None
    assert found.ways[0].break_even_gpu_hour_usd is None


def test_where_nothing_waits_there_is_nothing_to_compare() -> None:
    assert compare(case([dataset("A", state="draining", finished_lengths=lengths(5))]), [api()]) is None


def test_a_batch_takes_its_discount_off() -> None:
    discounted = replace(priced(), batch_discount=Price(Decimal("0.5"), "x"))
    (way,) = compared(api(prices=discounted)).ways
    assert way.whole.usd is not None
    assert way.batch_usd == way.whole.usd.p50 / 2


def test_reasoning_billed_apart_takes_the_share_that_is_known_else_the_dearer_price() -> None:
    apart = replace(priced("0", "1"), reasoning_per_mtok=Price(Decimal(3), "x"))
    now = case()
    half = replace(now, texts=Texts(now.texts.prompt_tokens, dict.fromkeys("ABC", 0.5)))
    unknown, known = (compare(each, [api(prices=apart)]) for each in (now, half))
    assert unknown is not None
    assert known is not None
    assert usd(known.ways[0].whole.usd)[1] == pytest.approx(usd(unknown.ways[0].whole.usd)[1] * 2 / 3, rel=1e-4)


def test_the_more_is_done_the_surer_is_the_range() -> None:
    young = [dataset("A", finished_lengths=lengths(20), in_flight_tokens=[])]
    old = [dataset("A", finished_lengths=lengths(9000), in_flight_tokens=[])]
    spread = []
    for each in (young, old):
        seconds = compared(api(log_sd=0.05), datasets=each).ways[0].whole.seconds
        assert seconds is not None
        spread.append(seconds.p90 / seconds.p10)
    assert spread[1] < spread[0]
