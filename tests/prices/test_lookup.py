"""run.toml outranks what a provider told, and that the list; each price keeps its own source."""

from __future__ import annotations

import json
from datetime import UTC, date, datetime
from pathlib import Path

import pytest

from backend.config.shape import ApiConfig
from backend.prices.lookup import prices_of
from backend.prices.models_endpoint import kept_file
from backend.prices.price_list import list_name

AT = datetime(2026, 11, 20, tzinfo=UTC)
ADDRESS = "https://openrouter.ai/api/v1"


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))


def test_each_price_comes_from_the_nearest_source_that_knows_it() -> None:
    kept = kept_file(ADDRESS)
    kept.parent.mkdir()
    models = {"qwen/qwen3-32b": {"input_per_mtok": "0.2", "output_per_mtok": "0.5"}}
    kept.write_text(json.dumps({"source": f"{ADDRESS}/models", "fetched_at": 1_790_000_000, "models": models}))
    api = ApiConfig(base_url=ADDRESS, model="qwen/qwen3-32b", output_usd_per_mtok=1.43)
    found = prices_of(api, AT, written_on=date(2026, 11, 1))
    assert found.output_per_mtok is not None
    assert found.input_per_mtok is not None
    assert found.cached_input_per_mtok is not None
    assert (str(found.output_per_mtok.value), found.output_per_mtok.source) == ("1.43", "run.toml")
    assert found.output_per_mtok.as_of == date(2026, 11, 1)
    assert (str(found.input_per_mtok.value), found.input_per_mtok.source) == ("0.2", f"{ADDRESS}/models")
    assert found.cached_input_per_mtok.source == list_name()


def test_an_api_that_nobody_prices_is_unknown() -> None:
    assert prices_of(ApiConfig(base_url="http://127.0.0.1:8000/v1", model="mine"), AT).all == ()


def test_a_price_of_zero_that_was_written_is_zero() -> None:
    found = prices_of(ApiConfig(base_url="http://h/v1", model="mine", input_usd_per_mtok=0, output_usd_per_mtok=0), AT)
    assert found.known
    assert found.input_per_mtok is not None
    assert found.input_per_mtok.value == 0
