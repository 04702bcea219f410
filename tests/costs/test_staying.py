"""Staying costs GPU-hours, or energy and amortisation; what is not known makes it unknown."""

from __future__ import annotations

from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backend.costs.staying import Box, UsdRange, break_even_gpu_hour_usd
from backend.forecast.calibrate import Range

SECONDS = st.floats(min_value=0, max_value=1e8)
MONEY = st.decimals(min_value=0, max_value=1000, places=4)


def test_a_rented_box_costs_its_gpus_by_the_hour_until_each_end_of_the_range() -> None:
    box = Box(gpus=8, gpu_hour_usd=Decimal("2.5"))
    assert box.cost_until(Range(3600.0, 7200.0, 10800.0)) == UsdRange(Decimal(20), Decimal(40), Decimal(60))


def test_an_owned_box_costs_its_energy_and_its_amortisation() -> None:
    box = Box(gpus=8, power_w=4000.0, kwh_usd=Decimal("0.30"), amortisation_usd_per_hour=Decimal("1.10"))
    assert box.usd_per_hour == Decimal("2.30")
    assert box.cost(1800) == Decimal("1.15")
    assert Box(power_w=4000.0, kwh_usd=Decimal("0.30")).usd_per_hour == Decimal("1.20")
    assert Box(amortisation_usd_per_hour=Decimal("1.10")).usd_per_hour == Decimal("1.10")


def test_a_price_by_the_gpu_hour_holds_the_electricity() -> None:
    assert Box(gpus=2, gpu_hour_usd=Decimal(3), power_w=1000.0, kwh_usd=Decimal(9)).usd_per_hour == 6


@pytest.mark.parametrize(
    "box", [Box(), Box(gpus=8), Box(gpu_hour_usd=Decimal(2)), Box(kwh_usd=Decimal(1), amortisation_usd_per_hour=Decimal(1))]
)
def test_without_a_price_or_what_it_is_for_the_cost_is_unknown(box: Box) -> None:
    assert box.usd_per_hour is None
    assert box.cost_until(Range(1.0, 2.0, 3.0)) is None


def test_without_a_forecast_the_cost_is_unknown() -> None:
    assert Box(gpus=1, gpu_hour_usd=Decimal(1)).cost_until(None) is None


@given(MONEY, SECONDS, SECONDS)
def test_longer_never_costs_less(price: Decimal, one: float, other: float) -> None:
    box = Box(gpus=3, gpu_hour_usd=price)
    short, long = box.cost(min(one, other)), box.cost(max(one, other))
    assert short is not None
    assert long is not None
    assert 0 <= short <= long


@given(st.decimals(min_value="0.01", max_value=100_000, places=2), st.integers(1, 64), st.floats(min_value=1, max_value=1e7))
def test_at_the_break_even_price_staying_costs_what_the_api_does(api_usd: Decimal, gpus: int, seconds: float) -> None:
    even = break_even_gpu_hour_usd(api_usd, gpus, seconds)
    staying = Box(gpus=gpus, gpu_hour_usd=even).cost(seconds)
    assert staying is not None
    assert float(staying) == pytest.approx(float(api_usd), rel=1e-12)


def test_there_is_no_break_even_where_a_part_is_unknown() -> None:
    assert break_even_gpu_hour_usd(None, 4, 3600.0) is None
    assert break_even_gpu_hour_usd(Decimal(1), None, 3600.0) is None
    assert break_even_gpu_hour_usd(Decimal(1), 4, None) is None
    assert break_even_gpu_hour_usd(Decimal(1), 4, -5.0) is None
