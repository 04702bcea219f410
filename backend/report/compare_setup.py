"""What a reader can do for a better comparison: the TOML to paste into run.toml, and prices fetched anew."""

from __future__ import annotations

import math
from collections.abc import Sequence
from decimal import Decimal
from typing import Final

import tomli_w

from backend.prices.models_endpoint import PricesError, fetch_prices
from backend.report.compare import CompareView
from backend.report.compare_options import OPENROUTER, OPENROUTER_URL
from backend.report.formatting import plural

NAME: Final = "fallback"
CAP_FACTOR: Final = Decimal("1.2")  # over the likely cost: room for answers that are longer than expected


def api_toml(view: CompareView) -> str:
    """An `[api.NAME]` for the model at OpenRouter where the list knows it there, else with places to fill in."""
    listed = next((o for o in view.options if not o.configured and o.api.name.startswith(OPENROUTER)), None)
    cap = None
    if listed is not None and (found := view.way(listed.api.name)) is not None and found[1].whole.usd is not None:
        cap = max(math.ceil(found[1].whole.usd.p90 * CAP_FACTOR), 1)
    section = {
        "base_url": OPENROUTER_URL if listed is not None else "https://api.example.com/v1",
        "model": listed.api.model if listed is not None else view.model,
        "api_key_env": f"{NAME.upper()}_API_KEY",
        "concurrency": listed.api.limits.streams if listed is not None else 64,
        **({"spend_cap_usd": cap} if cap is not None else {}),
    }
    return tomli_w.dumps({"api": {NAME: section}})


def costs_toml() -> str:
    """A `[costs]` with a price to fill in."""
    return tomli_w.dumps({"costs": {"gpu_hour_usd": 2.5}})


def price_addresses(view: CompareView) -> list[str]:
    """Whose models endpoints are asked for prices: those of the APIs of run.toml, and OpenRouter's."""
    return list(dict.fromkeys([*(o.base_url for o in view.options if o.base_url is not None), OPENROUTER_URL]))


def refresh_prices(addresses: Sequence[str], now: float) -> list[str]:
    """Asks each for its prices; a sentence each. `now` in epoch seconds."""
    told = []
    for address in addresses:
        try:
            told.append(f"{address}: prices of {plural(fetch_prices(address, now), 'model')}.")
        except PricesError as error:
            told.append(str(error))
    return told
