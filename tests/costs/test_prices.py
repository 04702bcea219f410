"""What usage costs: exactly, each token once, unknown where a price is."""

from __future__ import annotations

from datetime import date
from decimal import Decimal
from fractions import Fraction
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from backend.costs.prices import Price, Prices, Usage, blended_usd_per_mtok, cost_usd

AMOUNTS = st.decimals(min_value=0, max_value=1000, places=6)
SHARES = st.decimals(min_value=0, max_value=1, places=4)
COUNTS = st.integers(min_value=0, max_value=10**13)


def prices(**amounts: Any) -> Prices:
    """Prices by field, each from a list of 1 March 2026."""
    return Prices(**{field: Price(Decimal(str(value)), "a list", date(2026, 3, 1)) for field, value in amounts.items()})


PRICED = st.builds(prices, input_per_mtok=AMOUNTS, cached_input_per_mtok=AMOUNTS, output_per_mtok=AMOUNTS,
                   reasoning_per_mtok=AMOUNTS, request=AMOUNTS)  # fmt: skip


@st.composite
def usages(draw: st.DrawFn) -> Usage:
    prompt, completion = draw(COUNTS), draw(COUNTS)
    return Usage(draw(COUNTS), prompt, draw(st.integers(0, prompt)), completion, draw(st.integers(0, completion)))


def test_each_kind_of_token_is_charged_once_at_its_own_price() -> None:
    charged = prices(input_per_mtok=1, cached_input_per_mtok="0.1", output_per_mtok=10, reasoning_per_mtok=20, request="0.001")
    usage = Usage(requests=2, prompt=1_000_000, cached=400_000, completion=500_000, reasoning=300_000)
    assert cost_usd(usage, charged) == Decimal("0.6") + Decimal("0.04") + Decimal("2") + Decimal("6") + Decimal("0.002")


def test_reasoning_within_the_completion_tokens_costs_nothing_more_where_it_is_not_billed_apart() -> None:
    charged = prices(input_per_mtok=1, output_per_mtok=10)
    usage = Usage(prompt=100, completion=1000)
    assert cost_usd(Usage(prompt=100, completion=1000, reasoning=900), charged) == cost_usd(usage, charged)


def test_cached_input_costs_what_other_input_does_where_it_has_no_price_of_its_own() -> None:
    charged = prices(input_per_mtok=1, output_per_mtok=10)
    assert cost_usd(Usage(prompt=100, cached=80), charged) == cost_usd(Usage(prompt=100), charged)


def test_an_unknown_price_makes_an_unknown_cost_and_never_zero() -> None:
    assert cost_usd(Usage(prompt=1, completion=1), prices(input_per_mtok=1)) is None
    assert cost_usd(Usage(prompt=1, completion=1), prices(output_per_mtok=1)) is None
    assert cost_usd(Usage(prompt=1, completion=1), Prices()) is None
    assert cost_usd(Usage(prompt=0, completion=1_000_000), prices(output_per_mtok=1)) == 1


def test_counts_that_contradict_themselves_charge_no_token_twice() -> None:
    charged = prices(input_per_mtok=1, cached_input_per_mtok=1, output_per_mtok=1, reasoning_per_mtok=1)
    odd = Usage(prompt=10, cached=50, completion=10, reasoning=99)
    assert cost_usd(odd, charged) == cost_usd(Usage(prompt=10, cached=10, completion=10, reasoning=10), charged)
    assert cost_usd(Usage(prompt=10, cached=-5, completion=10, reasoning=-5), charged) == Decimal("0.00002")


@given(PRICED, st.lists(usages(), max_size=20))
def test_the_sum_over_requests_is_the_cost_of_their_sum_to_the_last_digit(charged: Prices, each: list[Usage]) -> None:
    apart = [cost_usd(usage, charged) for usage in each]
    total = cost_usd(sum(each, Usage(requests=0)), charged)
    assert total is not None
    assert sum((Fraction(cost) for cost in apart if cost is not None), Fraction(0)) == Fraction(total)


@given(PRICED, usages(), usages())
def test_more_usage_never_costs_less(charged: Prices, usage: Usage, more: Usage) -> None:
    before, after = cost_usd(usage, charged), cost_usd(usage + more, charged)
    assert before is not None
    assert after is not None
    assert after >= before >= 0


@given(PRICED, SHARES, usages())
def test_a_batch_costs_exactly_the_share_that_the_discount_leaves(charged: Prices, share: Decimal, usage: Usage) -> None:
    discounted = Prices(**{f: getattr(charged, f) for f in Prices.__dataclass_fields__} | {"batch_discount": Price(share, "x")})
    full, batch = cost_usd(usage, discounted), cost_usd(usage, discounted, batch=True)
    assert full is not None
    assert batch is not None
    assert Fraction(batch) == Fraction(full) * (1 - Fraction(share))
    assert full == cost_usd(usage, charged)


def test_prices_over_others_take_only_what_is_missing() -> None:
    own, listed = prices(output_per_mtok=2), prices(input_per_mtok=1, output_per_mtok=9)
    merged = own.over(listed)
    assert (merged.input_per_mtok, merged.output_per_mtok) == (listed.input_per_mtok, own.output_per_mtok)
    assert merged.known
    assert not own.known
    assert merged.all == (listed.input_per_mtok, own.output_per_mtok)


def test_the_price_of_a_million_tokens_reckons_in_prompts_and_requests() -> None:
    assert blended_usd_per_mtok(Decimal("85.8"), 60e6) == Decimal("1.43")
    assert blended_usd_per_mtok(None, 60e6) is None
    assert blended_usd_per_mtok(Decimal(1), 0) is None
