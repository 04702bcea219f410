"""A spend cap that could not be kept is told before anybody waits for an API that gets nothing."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest

from backend.config import RunConfig
from backend.report.spend_bounds import spend_bound_warnings
from tests.made_comparison import APIS, SOLD


@pytest.fixture
def settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> RunConfig:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return RunConfig.model_validate(tomllib.loads((SOLD + APIS).format(name="demo")))


def test_datasets_without_a_cap_on_new_tokens_are_named_with_the_remedy(settings: RunConfig) -> None:
    (words,) = spend_bound_warnings(settings, "demo", {"alpha": None, "beta": 100}, {"fast": 5.0})
    assert words.startswith("alpha has no cap on new tokens, so that one answer could cost anything")
    assert "the cap of $5 of fast could not be kept: nothing of it will be sent there" in words
    assert words.endswith("python -m backend set demo alpha.max_new_tokens=8192")
    (both,) = spend_bound_warnings(settings, "demo", {"alpha": None, "beta": None}, {"fast": 5.0})
    assert both.startswith("alpha, beta have no cap")


def test_an_api_without_a_price_is_named_with_the_keys_to_write(settings: RunConfig) -> None:
    (words,) = spend_bound_warnings(settings, "demo", {"alpha": 100}, {"unpriced": 5.0})
    assert "is not known" in words
    assert "output_usd_per_mtok into [api.unpriced]" in words


def test_without_a_spend_cap_or_with_all_that_it_needs_nothing_is_told(settings: RunConfig) -> None:
    assert spend_bound_warnings(settings, "demo", {"alpha": None}, {"fast": None, "unpriced": None}) == []
    assert spend_bound_warnings(settings, "demo", {"alpha": 100}, {"fast": 5.0}) == []
