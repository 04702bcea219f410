"""Dollars as people read them."""

from __future__ import annotations

from decimal import Decimal

import pytest

from backend.costs.staying import UsdRange
from backend.report.money import usd, usd_range


@pytest.mark.parametrize(
    ("amount", "shown"),
    [
        ("0", "$0"), ("85.8", "$85.80"), ("1.43", "$1.43"), ("99.999", "$100"), ("12345.6", "$12,346"), ("0.035", "$0.035"),
        ("0.4", "$0.40"), ("0.138", "$0.14"), ("0.00042", "$0.00042"), ("0.9999", "$1.00"), ("0.1", "$0.10"),
    ],
)  # fmt: skip
def test_an_amount_has_as_many_digits_as_say_something(amount: str, shown: str) -> None:
    assert usd(Decimal(amount)) == shown


def test_what_is_not_known_is_unknown_and_not_nothing() -> None:
    assert usd(None) == "unknown"
    assert usd_range(None) == "unknown"


def test_a_range_whose_ends_are_nearly_the_same_is_one_figure() -> None:
    assert usd_range(UsdRange(Decimal("96.10"), Decimal("96.11"), Decimal("96.11"))) == "$96.11"
    assert usd_range(UsdRange(Decimal("48.1"), Decimal(60), Decimal("76.2"))) == "$48.10–76.20"
    assert usd_range(UsdRange(Decimal("120.1"), Decimal("120.2"), Decimal("120.3"))) == "$120"
