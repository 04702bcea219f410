"""PURE: what a request to an API costs at worst before it is sent, and what it has cost by the usage that came back.

The API's own word (`usage.cost`) goes before the price list; without either the cost is unknown, never 0.
"""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal
from typing import Final

from backend.costs.prices import Price, Prices, Usage, cost_usd

TEMPLATE_TOKENS: Final = 64  # what a chat template may add to the whole, with a system prompt of the provider's
MESSAGE_TOKENS: Final = 16  # and to each message
TOOLS_TOKENS: Final = 512  # and to explain tools


@dataclass(frozen=True, slots=True)
class ApiUsage:
    """What an API says that one answer took. None: it does not say."""

    prompt_tokens: int | None = None
    completion_tokens: int | None = None  # reasoning included
    reasoning_tokens: int | None = None
    cached_tokens: int | None = None
    cost_usd: float | None = None  # what it has charged


def prompt_tokens_at_most(body: bytes, messages: int, *, tools: bool) -> int:
    """A bound that no tokenizer passes: a token is a byte at least."""
    return len(body) + TEMPLATE_TOKENS + MESSAGE_TOKENS * messages + (TOOLS_TOKENS if tools else 0)


def worst_usd(prompt_tokens: int, max_new_tokens: int | None, prices: Prices) -> float | None:
    """What a request may cost at most; None where that is not bounded: an unknown price, no cap on new tokens."""
    if max_new_tokens is None or not prices.known:
        return None
    usage = Usage(requests=1, prompt=prompt_tokens, completion=max_new_tokens)
    dear = Prices(
        input_per_mtok=_dearer(prices.input_per_mtok, prices.cached_input_per_mtok),
        output_per_mtok=_dearer(prices.output_per_mtok, prices.reasoning_per_mtok),
        request=prices.request,
    )
    cost = cost_usd(usage, dear)
    return None if cost is None else float(cost)


def billed_usd(usage: ApiUsage, prices: Prices) -> float | None:
    """What an answer cost: the API's word, else tokens times prices; None where neither is known."""
    return usage.cost_usd if usage.cost_usd is not None else listed_usd(usage, prices)


def listed_usd(usage: ApiUsage, prices: Prices) -> float | None:
    """Tokens times prices; None where a count or a price is unknown."""
    if usage.prompt_tokens is None or usage.completion_tokens is None:
        return None
    counted = Usage(
        requests=1,
        prompt=usage.prompt_tokens,
        cached=usage.cached_tokens or 0,
        completion=usage.completion_tokens,
        reasoning=usage.reasoning_tokens or 0,
    )
    cost: Decimal | None = cost_usd(counted, prices)
    return None if cost is None else float(cost)


def _dearer(one: Price | None, other: Price | None) -> Price | None:
    known = [price for price in (one, other) if price is not None]
    return max(known, key=lambda price: price.value, default=None)
