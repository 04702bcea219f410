"""The price list that works offline: the package genai-prices, in the version of requirements.txt. Nothing is fetched.

A price's date is the day since when it holds, where the list tells; else the newest day on which the list records any change.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date, datetime
from decimal import Decimal
from functools import cache
from importlib.metadata import version
from typing import TYPE_CHECKING, Any, Final

from backend.costs.prices import EXACT, Price, Prices

if TYPE_CHECKING:
    from genai_prices.types import ModelInfo, Provider

PACKAGE: Final = "genai-prices"
BATCH: Final = {"processing": "batch"}
_NOT_FOR_US: Final = re.compile(r":(free|batch|beta|nitro|floor|online|extended|exacto)$")  # OpenRouter's variants of a model
_QUANTISED: Final = re.compile(
    r"[-_.](fp8|fp4|nvfp4|mxfp4|bf16|fp16|awq|gptq|gguf|int4|int8|w4a16|w8a8|4bit|8bit|dynamic|marlin)$"
)


@dataclass(frozen=True, slots=True)
class Listing:
    """One model at one provider."""

    provider: str  # "OpenRouter"
    model: str  # as that provider calls it
    prices: Prices


def listed_prices(base_url: str, model: str, at: datetime) -> Prices:
    """The list's prices of a model at the provider of this address; all unknown where the list knows either not."""
    from genai_prices.data_snapshot import get_snapshot

    try:
        provider, info = get_snapshot().find_provider_model(model, None, None, base_url)
    except LookupError:
        return Prices()
    return _prices(provider, info, at)


def listings(model: str, at: datetime) -> list[Listing]:
    """Who else serves a model of this name (an id, a folder, with or without a quantisation), cheapest output first."""
    wanted = plain_name(model)
    found = []
    for provider, info in _offered():
        if plain_name(info.id) == wanted or info.is_match(model):
            prices = _prices(provider, info, at)
            if prices.known:
                found.append(Listing(provider.name, info.id, prices))
    return sorted(
        found, key=lambda each: (each.prices.output_per_mtok.value if each.prices.output_per_mtok else 0, each.provider)
    )


@cache
def listed_models() -> tuple[str, ...]:
    """Every model that OpenRouter sells, by its id: what a model without a price of its own can be compared with."""
    return tuple(sorted(info.id for provider, info in _offered() if provider.id == "openrouter"))


def plain_name(model: str) -> str:
    """ "/models/Qwen3-8B-FP8", "Qwen/Qwen3-8B" and "qwen/qwen3-8b" are one model: "qwen3-8b"."""
    name = model.rstrip("/").rpartition("/")[2].lower()
    while (shorter := _QUANTISED.sub("", name)) != name:
        name = shorter
    return name


@cache
def list_name() -> str:
    """The list with its version, as the source of a price."""
    return f"{PACKAGE} {version(PACKAGE)}"


@cache
def _offered() -> tuple[tuple[Provider, ModelInfo], ...]:
    from genai_prices.data_snapshot import get_snapshot

    return tuple(
        (provider, info)
        for provider in get_snapshot().providers
        for info in provider.models
        if not info.deprecated and not _NOT_FOR_US.search(info.id)
    )


def _prices(provider: Provider, info: ModelInfo, at: datetime) -> Prices:
    told = info.get_prices(at).__dict__
    since = _since(info, at) or _newest(at.date())
    source = list_name()

    def price(value: Decimal | None) -> Price | None:
        return None if value is None else Price(value, source, since)

    output = _amount(told, "output_mtok")
    own = any(info is each for each in provider.models)
    batch = _amount(info.get_prices(at, BATCH).__dict__, "output_mtok") if own and info.price_variants else None
    by_thousand = _amount(told, "requests_kcount")
    return Prices(
        input_per_mtok=price(_amount(told, "input_mtok")),
        cached_input_per_mtok=price(_amount(told, "cache_read_mtok")),
        output_per_mtok=price(output),
        reasoning_per_mtok=price(_amount(told, "output_reasoning_mtok")),
        request=price(None if by_thousand is None else by_thousand.scaleb(-3, EXACT)),
        batch_discount=price(1 - batch / output) if batch is not None and output and batch < output else None,
    )


def _amount(told: Mapping[str, Any], key: str) -> Decimal | None:
    """A price; of one in tiers the first, which holds for prompts below some 100,000 tokens."""
    value = told.get(key)
    value = getattr(value, "base", value)
    return value if isinstance(value, Decimal) else None


def _since(info: ModelInfo, at: datetime) -> date | None:
    if not isinstance(info.prices, list):
        return None
    for each in reversed(info.prices):
        if each.constraint is None or each.constraint.active(at):
            return getattr(each.constraint, "start_date", None)
    return None


@cache
def _newest(today: date) -> date | None:
    """The last day, not after today, on which the list records a change of any price."""
    changes = (
        getattr(each.constraint, "start_date", None)
        for _, info in _offered()
        if isinstance(info.prices, list)
        for each in info.prices
    )
    return max((day for day in changes if day is not None and day <= today), default=None)
