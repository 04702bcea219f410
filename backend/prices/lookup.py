"""The prices of an API of a run: what run.toml says, else what its models endpoint told, else the list's."""

from __future__ import annotations

from datetime import date, datetime
from decimal import Decimal
from typing import Final

from backend.config.shape import ApiConfig
from backend.costs.prices import Price, Prices
from backend.prices.models_endpoint import kept_prices
from backend.prices.price_list import listed_prices

WRITTEN: Final = {
    "input_per_mtok": "input_usd_per_mtok",
    "cached_input_per_mtok": "cached_input_usd_per_mtok",
    "output_per_mtok": "output_usd_per_mtok",
    "reasoning_per_mtok": "reasoning_usd_per_mtok",
    "request": "request_usd",
    "batch_discount": "batch_discount",
}


def prices_of(api: ApiConfig, at: datetime, written_on: date | None = None) -> Prices:
    """Price by price, the nearest source that knows it. `written_on`: the day of run.toml, shown beside its prices."""
    written = {
        field: Price(Decimal(str(value)), "run.toml", written_on)
        for field, key in WRITTEN.items()
        if (value := getattr(api, key)) is not None
    }
    own = Prices(**written)
    return own.over(kept_prices(api.base_url, api.model).over(listed_prices(api.base_url, api.model, at)))
