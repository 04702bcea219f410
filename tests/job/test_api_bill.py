"""A request never costs more than it was said to at worst, and nothing is charged twice or taken for free."""

from __future__ import annotations

from decimal import Decimal

import pytest

from backend.costs.prices import Price, Prices
from backend.job.api_bill import ApiUsage, billed_usd, listed_usd, prompt_tokens_at_most, worst_usd
from backend.simulator import tokens


def price(value: str) -> Price:
    return Price(Decimal(value), "run.toml")


PRICES = Prices(input_per_mtok=price("0.5"), cached_input_per_mtok=price("0.05"), output_per_mtok=price("2"))


def test_cached_tokens_are_charged_once_and_reasoning_is_inside_the_completion() -> None:
    usage = ApiUsage(prompt_tokens=1_000, completion_tokens=500, reasoning_tokens=400, cached_tokens=600)
    assert billed_usd(usage, PRICES) == pytest.approx((400 * 0.5 + 600 * 0.05 + 500 * 2) / 1e6, abs=1e-15)


def test_the_apis_own_word_goes_before_the_price_list() -> None:
    usage = ApiUsage(prompt_tokens=1_000, completion_tokens=500, cost_usd=0.02)
    assert billed_usd(usage, PRICES) == 0.02
    assert listed_usd(usage, PRICES) == pytest.approx(0.0015)


def test_a_price_that_no_list_has_makes_an_unknown_cost_and_no_bound() -> None:
    usage = ApiUsage(prompt_tokens=1_000, completion_tokens=500)
    assert billed_usd(usage, Prices()) is None
    assert worst_usd(1_000, 500, Prices()) is None
    assert worst_usd(1_000, 500, Prices(input_per_mtok=price("1"))) is None
    assert billed_usd(ApiUsage(prompt_tokens=5), PRICES) is None


def test_without_a_cap_on_new_tokens_nothing_bounds_a_request() -> None:
    assert worst_usd(1_000, None, PRICES) is None


def test_the_worst_case_takes_the_dearest_price_of_each_kind() -> None:
    dear = PRICES.over(Prices(reasoning_per_mtok=price("6"), request=price("0.001")))
    assert worst_usd(1_000, 100, dear) == pytest.approx(0.001 + 1_000 * 0.5e-6 + 100 * 6e-6)


@pytest.mark.parametrize("text", ["", "plain words", "é漢字🙂" * 50, "\ud835", "\x00\u2028", "zzqjx" * 100])
def test_no_prompt_has_more_tokens_than_its_bound(text: str) -> None:
    body = b'{"messages": [{"role": "user", "content": "%s"}]}' % text.encode("utf-8", "surrogatepass")
    rendered = f"<|im_start|>user\n{text}<|im_end|>\n<|im_start|>assistant\n"
    assert len(tokens.encode(rendered)) <= prompt_tokens_at_most(body, 1, tools=False)
