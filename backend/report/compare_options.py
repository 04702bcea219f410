"""The APIs that a run is compared with: those of its run.toml, and those that sell its model by the list of prices.

Each value comes with words that tell where it is from: measured by a probe, written in run.toml, or assumed; what is assumed is
the reader's to change.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import date, datetime
from typing import Any, Final

from backend.config import ApiConfig, RunConfig
from backend.costs.case import Api
from backend.costs.limits import ApiLimits, StreamSpeed
from backend.costs.prices import Prices
from backend.prices.lookup import prices_of
from backend.prices.models_endpoint import kept_prices
from backend.prices.price_list import Listing, listed_models, listings
from backend.probes import Probe
from backend.records import ApiStatus

MEASURED: Final = "measured"
WRITTEN: Final = "run.toml"
ASSUMED: Final = "assumed"
ASSUMED_LOG_SD: Final = 0.35  # of a stream's speed that nobody measured: 8 of 10 lie within a factor of 1.6
MEASURED_LOG_SD: Final = 0.15  # of one that a probe measured: another hour is another load
ASSUMED_FIRST_TOKEN_S: Final = 1.0
MOST_LISTED: Final = 8
RESELLER: Final = "HuggingFace ("
OPENROUTER: Final = "OpenRouter"
OPENROUTER_URL: Final = "https://openrouter.ai/api/v1"
WELL_KNOWN: Final = ("openai/gpt-oss-120b", "qwen/qwen3-32b", "meta-llama/llama-3.3-70b-instruct")  # for a model nobody sells


@dataclass(frozen=True, slots=True)
class Assumed:
    """What is taken for an API that tells nothing of it."""

    stream_tokens_per_s: float = 50.0
    streams: int = 300


@dataclass(frozen=True, slots=True)
class Option:
    """An API with where its figures come from, in words."""

    api: Api
    configured: bool
    speed_source: str
    streams_source: str
    probe: Probe | None = None
    base_url: str | None = None  # of a configured one


@dataclass(frozen=True, slots=True)
class Known:
    """What the run has learnt of its APIs, by their names."""

    probes: Mapping[str, Probe] = field(default_factory=dict)
    statuses: Mapping[str, ApiStatus] = field(default_factory=dict)


def configured_options(settings: RunConfig, known: Known, assumed: Assumed, at: datetime) -> list[Option]:
    """The APIs of run.toml, measured values in place of assumed ones where a probe has them."""
    created = settings.frozen.created_at if settings.frozen else None
    written = date.fromisoformat(created[:10]) if created else None
    return [_configured(name, api, known=known, assumed=assumed, at=at, written=written) for name, api in settings.api.items()]


def models_to_compare() -> tuple[str, ...]:
    """Ids of models whose list prices can be asked for."""
    return listed_models()


def listed_options(model: str, assumed: Assumed, at: datetime) -> list[Option]:
    """Who else sells that model, by the list: the cheapest few, a reseller only where it has a price of its own."""
    found = listings(model, at)
    chosen: dict[tuple[Any, ...], Listing] = {}
    for each in sorted(found, key=lambda listing: listing.provider.startswith(RESELLER)):
        prices = each.prices
        chosen.setdefault(tuple(p and p.value for p in (prices.input_per_mtok, prices.output_per_mtok)), each)
    kept = [each for each in found if each in chosen.values()][:MOST_LISTED]
    limits, speed = ApiLimits(assumed.streams), _assumed_speed(assumed.stream_tokens_per_s)
    return [Option(Api(each.provider, each.model, _newest(each), limits, speed), False, ASSUMED, ASSUMED) for each in kept]


def _newest(listing: Listing) -> Prices:
    """The list's prices, or OpenRouter's own where they were fetched."""
    if listing.provider != OPENROUTER:
        return listing.prices
    return kept_prices(OPENROUTER_URL, listing.model).over(listing.prices)


def _configured(name: str, api: ApiConfig, *, known: Known, assumed: Assumed, at: datetime, written: date | None) -> Option:
    probe, status = known.probes.get(name), known.statuses.get(name)
    told = probe if probe is not None and probe.model == api.model else None
    learnt = [source for source in (status, told) if source is not None]
    if told is not None and told.stream_tokens_per_s:
        spread = (told.stream_log_sd or 0.0) / max(told.answered, 1) ** 0.5
        first_s = told.first_token_s if told.first_token_s is not None else ASSUMED_FIRST_TOKEN_S
        speed, source = StreamSpeed(told.stream_tokens_per_s, max(spread, MEASURED_LOG_SD), first_s), MEASURED
    elif api.stream_tokens_per_s is not None:
        speed, source = _assumed_speed(api.stream_tokens_per_s), WRITTEN
    else:
        speed, source = _assumed_speed(assumed.stream_tokens_per_s), ASSUMED
    limits = ApiLimits(
        streams=api.concurrency or assumed.streams,
        requests_per_minute=api.requests_per_minute
        or next((s.requests_per_minute for s in learnt if s.requests_per_minute), None),
        tokens_per_minute=_first(api.tokens_per_minute, *(source.tokens_per_minute for source in learnt)),
    )
    cached = told.cached_share if told is not None and told.cached_share is not None else 0.0
    way = Api(name, api.model, prices_of(api, at, written), limits, speed, cached)
    return Option(way, True, source, WRITTEN if api.concurrency else ASSUMED, told, api.base_url)


def _first(*limits: float | None) -> float | None:
    """The nearest source's limit: written, learnt while the run goes on, told to a probe."""
    return next((limit for limit in limits if limit), None)


def _assumed_speed(tokens_per_s: float) -> StreamSpeed:
    return StreamSpeed(tokens_per_s, ASSUMED_LOG_SD, ASSUMED_FIRST_TOKEN_S)
