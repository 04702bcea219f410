"""What an API charges, and what usage costs by it: exact decimal arithmetic, each price with its source and date.

An unknown price is None and makes an unknown cost, never 0. Reasoning tokens are part of the completion tokens, cached tokens
part of the prompt tokens: neither is charged twice.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from datetime import date
from decimal import Context, Decimal, localcontext
from typing import Final

EXACT: Final = Context(prec=100)  # more digits than any price times any count of tokens has: nothing is ever rounded
MILLION_EXPONENT: Final = -6


@dataclass(frozen=True, slots=True)
class Price:
    """One price in US dollars (or a share, for a discount), with who told it and of when it is."""

    value: Decimal
    source: str  # "run.toml", "genai-prices 0.2.3", the address of a models endpoint
    as_of: date | None = None  # since when it holds, or when it was fetched; None where the source does not tell


@dataclass(frozen=True, slots=True)
class Prices:
    """What one model costs at one API. None is unknown."""

    input_per_mtok: Price | None = None  # a million prompt tokens
    cached_input_per_mtok: Price | None = None  # of those that came from the API's cache; None: charged like any other
    output_per_mtok: Price | None = None  # a million completion tokens
    reasoning_per_mtok: Price | None = None  # where reasoning is billed apart; None: it is charged as output
    request: Price | None = None  # a request; None: nothing by request
    batch_discount: Price | None = None  # share off, 0..1, where a batch (within a day) will do

    def over(self, others: Prices) -> Prices:
        """These prices, with the others' in place of those that are unknown."""
        return Prices(**{f.name: getattr(self, f.name) or getattr(others, f.name) for f in fields(Prices)})

    @property
    def known(self) -> bool:
        """Whether a cost can be told by them: input and output are priced."""
        return self.input_per_mtok is not None and self.output_per_mtok is not None

    @property
    def all(self) -> tuple[Price, ...]:
        """Those that are known, in the order of the fields."""
        found = (getattr(self, f.name) for f in fields(Prices))
        return tuple(price for price in found if price is not None)


@dataclass(frozen=True, slots=True)
class Usage:
    """What an API charges for: one request or many. `cached` is part of `prompt`, `reasoning` part of `completion`."""

    requests: int = 1
    prompt: int = 0  # tokens, and so the next ones
    cached: int = 0
    completion: int = 0
    reasoning: int = 0

    def __add__(self, other: Usage) -> Usage:
        return Usage(
            self.requests + other.requests,
            self.prompt + other.prompt,
            self.cached + other.cached,
            self.completion + other.completion,
            self.reasoning + other.reasoning,
        )


def cost_usd(usage: Usage, prices: Prices, *, batch: bool = False) -> Decimal | None:
    """What this usage costs, exactly; None where a price that it needs is unknown.

    (prompt - cached) · input + cached · cached input + (completion - reasoning) · output + reasoning · reasoning, each over a
    million, + requests · request; with `batch` and a known discount, less that share.
    """
    cached = min(max(usage.cached, 0), usage.prompt)
    reasoning = min(max(usage.reasoning, 0), usage.completion)
    parts = (
        (usage.prompt - cached, prices.input_per_mtok),
        (cached, prices.cached_input_per_mtok or prices.input_per_mtok),
        (usage.completion - reasoning, prices.output_per_mtok),
        (reasoning, prices.reasoning_per_mtok or prices.output_per_mtok),
    )
    with localcontext(EXACT):
        total = Decimal(0)
        for tokens, price in parts:
            if tokens and price is None:
                return None
            if tokens and price is not None:
                total += (tokens * price.value).scaleb(MILLION_EXPONENT)
        if prices.request is not None:
            total += usage.requests * prices.request.value
        if batch and prices.batch_discount is not None:
            total *= 1 - prices.batch_discount.value
        return total


def blended_usd_per_mtok(cost: Decimal | None, completion_tokens: float) -> Decimal | None:
    """What a million completion tokens come to, all included; None where the cost is unknown or nothing is made."""
    if cost is None or completion_tokens <= 0:
        return None
    return cost / Decimal(repr(float(completion_tokens))) * 1_000_000
