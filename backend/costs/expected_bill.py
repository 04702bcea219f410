"""What an API would take for what waits: each draw exactly, then the quantiles of the draws."""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal
from typing import Final

from backend.costs.case import Api, Texts
from backend.costs.prices import Usage, cost_usd
from backend.costs.staying import UsdRange
from backend.costs.waiting import Waiting

QUANTILES: Final = (0.1, 0.5, 0.9)


def cost_draws(api: Api, one: Waiting, texts: Texts, *, batch: bool = False) -> list[Decimal] | None:
    """What a dataset costs there in each draw, exactly. None where a price that it needs is unknown.

    Prompts of unknown length make the cost unknown, unless input is free.
    """
    prices, prompt_each = api.prices, texts.prompt_tokens.get(one.name)
    if prompt_each is None and (prices.input_per_mtok is None or prices.input_per_mtok.value):
        return None
    reasoning = texts.reasoning_share.get(one.name)
    if reasoning is None:  # then the dearer of the two prices holds for all
        own, output = prices.reasoning_per_mtok, prices.output_per_mtok
        reasoning = 1.0 if own is not None and output is not None and own.value > output.value else 0.0
    found = []
    for requests, completion in zip(one.requests.tolist(), one.tokens.tolist(), strict=True):
        prompt = round(requests * (prompt_each or 0.0))
        usage = Usage(
            round(requests), prompt, round(prompt * api.cached_share), round(completion), round(completion * reasoning)
        )
        cost = cost_usd(usage, prices, batch=batch)
        if cost is None:
            return None
        found.append(cost)
    return found


def usd_range(each: Sequence[Sequence[Decimal] | None]) -> UsdRange | None:
    """The quantiles of the sum over datasets, draw by draw; None where one of them is unknown or there is none."""
    known = [draws for draws in each if draws is not None]
    if not each or len(known) < len(each):
        return None
    total = sorted(sum(parts, Decimal(0)) for parts in zip(*known, strict=True))
    p10, p50, p90 = (total[min(int(q * len(total)), len(total) - 1)] for q in QUANTILES)
    return UsdRange(p10, p50, p90)
