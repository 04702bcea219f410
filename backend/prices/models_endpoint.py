"""Prices from a provider's models endpoint, in the shape of OpenRouter's `/api/v1/models`: fetched on demand, kept in a file.

`data[]` holds `id` and `pricing` {prompt, completion, input_cache_read, internal_reasoning, request} as US dollars for ONE
token (or request), written as text. No key is sent: such a list is public.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import time
import urllib.error
import urllib.request
from collections.abc import Mapping
from datetime import UTC, datetime
from decimal import Decimal, InvalidOperation
from http.client import HTTPException
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

from backend.costs.prices import EXACT, Price, Prices

TIMEOUT_S: Final = 20.0
LARGEST_BYTES: Final = 32 << 20
PIECE_BYTES: Final = 1 << 16
MOST_USD_PER_MTOK: Final = Decimal(1_000_000)  # more is no price
# field of `Prices` → key in `pricing`, and how many of it the field is for
PRICING: Final = {
    "input_per_mtok": ("prompt", 6),
    "cached_input_per_mtok": ("input_cache_read", 6),
    "output_per_mtok": ("completion", 6),
    "reasoning_per_mtok": ("internal_reasoning", 6),
    "request": ("request", 0),
}


class PricesError(Exception):
    """Prices could not be fetched; the message says why and what to do."""


def fetch_prices(base_url: str, now: float) -> int:
    """Asks `base_url`/models, keeps what it says, and answers how many models have a price. Raises PricesError."""
    address = models_address(base_url)
    models = parse_models(_get(address), address)
    path = kept_file(base_url)
    told = {"source": address, "fetched_at": now, "models": models}
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        new = path.with_suffix(f".{os.getpid()}.tmp")
        new.write_text(json.dumps(told), encoding="utf-8")
        new.replace(path)
    except OSError as error:
        raise PricesError(f"The prices of {address} cannot be kept in {path} ({error.strerror}).") from None
    return len(models)


def kept_prices(base_url: str, model: str) -> Prices:
    """What was fetched last from that address for this model; all unknown where nothing was, or nothing that can be read."""
    try:
        told = json.loads(kept_file(base_url).read_text(encoding="utf-8"))
        day = datetime.fromtimestamp(told["fetched_at"], UTC).date()
        found, source = told["models"].get(model, {}), str(told["source"])
    except (OSError, ValueError, KeyError, TypeError, AttributeError, OverflowError):
        return Prices()
    values = {field: _decimal(found.get(field)) for field in PRICING} if isinstance(found, dict) else {}
    return Prices(**{field: Price(value, source, day) for field, value in values.items() if value is not None})


def parse_models(body: bytes, address: str) -> dict[str, dict[str, str]]:
    """Model → its known prices, by the fields of `Prices`. Raises PricesError where the answer tells no price at all."""
    try:
        data = json.loads(body)["data"]
    except (ValueError, KeyError, TypeError, RecursionError):
        data = None
    if not isinstance(data, list):
        raise PricesError(
            f'{address} does not answer with a list of models (JSON with "data"): is this the base_url of an API?'
        )
    found = {}
    for each in data:
        if isinstance(each, dict) and isinstance(each.get("id"), str) and isinstance(each.get("pricing"), dict):
            prices = _pricing(each["pricing"])
            if prices:
                found[each["id"][:200]] = prices
    if not found:
        raise PricesError(f"{address} lists {len(data)} models and tells no price. Write the prices into run.toml.")
    return found


def models_address(base_url: str) -> str:
    """Where an API lists its models."""
    return f"{base_url.rstrip('/')}/models"


def kept_file(base_url: str) -> Path:
    """The file that keeps the prices of an address: in the user's cache, as they belong to no run."""
    folder = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "headway"
    host = re.sub(r"[^a-z0-9.-]", "-", (urlsplit(base_url).hostname or "api").lower())[:60]
    return folder / f"prices-{host}-{hashlib.sha256(models_address(base_url).encode()).hexdigest()[:8]}.json"


def _pricing(pricing: Mapping[str, Any]) -> dict[str, str]:
    values = {}
    for field, (key, exponent) in PRICING.items():
        value = _decimal(pricing.get(key))
        if value is not None and (field in ("input_per_mtok", "output_per_mtok") or value):  # 0 for what is not charged apart
            values[field] = str(value.scaleb(exponent, EXACT).normalize(EXACT))
    return values


def _decimal(value: Any) -> Decimal | None:
    """None for what is no price: OpenRouter writes -1 for what depends on the request."""
    try:
        found = Decimal(value) if isinstance(value, str) and len(value) <= 40 else None
    except InvalidOperation:
        return None
    return found if found is not None and found.is_finite() and 0 <= found < MOST_USD_PER_MTOK else None


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """An address that points elsewhere is not followed: it could point into the own network."""

    def redirect_request(self, *_: Any) -> None:
        return None


def _get(address: str) -> bytes:
    if urlsplit(address).scheme not in ("http", "https"):
        raise PricesError(f"{address} is no address: a base_url begins with https:// or http://.")
    opener = urllib.request.build_opener(_NoRedirect)
    request = urllib.request.Request(address, headers={"Accept": "application/json", "User-Agent": "headway"})
    until = time.monotonic() + TIMEOUT_S
    pieces: list[bytes] = []
    try:
        with contextlib.closing(opener.open(request, timeout=TIMEOUT_S)) as answer:
            while piece := answer.read(PIECE_BYTES):
                pieces.append(piece)
                if len(pieces) * PIECE_BYTES > LARGEST_BYTES or time.monotonic() > until:
                    raise PricesError(f"{address} answers too slowly, or with more than {LARGEST_BYTES >> 20} MB: not used.")
    except urllib.error.HTTPError as error:
        with error:
            raise PricesError(f"{address} answers {error.code} to a question without a key. {_INSTEAD}") from None
    except (urllib.error.URLError, HTTPException, OSError, ValueError) as error:
        reason = getattr(error, "reason", None) or error
        raise PricesError(f"{address} cannot be asked ({reason}). {_INSTEAD}") from None
    return b"".join(pieces)


_INSTEAD: Final = "The prices known so far stay; others can be written into run.toml."
