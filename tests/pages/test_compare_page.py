"""The page Compare: what is seen at first, what a choice changes, and that a press asks providers once."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from streamlit.testing.v1 import AppTest

from backend.report import compare_setup
from backend.run_dir import RunDir
from tests.made_comparison import SOLD, make_compared
from tests.made_forecast import status_of, two_datasets
from tests.made_run import beat, holding_lock
from tests.pages.shown import open_page, words


@pytest.fixture(autouse=True)
def own_folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HEADWAY_RUNS", str(tmp_path / "runs"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


@pytest.fixture
def run(tmp_path: Path) -> Iterator[RunDir]:
    run = make_compared(tmp_path)
    with holding_lock(run, time.time()):
        yield run


def shown(**parameters: str) -> AppTest:
    at = open_page("compare.py", run="demo", **parameters)
    assert not at.exception, [e.message for e in at.exception]
    return at


def test_at_first_sight_without_an_api_it_compares_with_list_prices_and_tells_how_to_configure_one(tmp_path: Path) -> None:
    make_compared(tmp_path, SOLD)
    text = words(shown())
    for each in (
        "Staying takes",
        "OpenRouter",
        "genai-prices",
        "What no price shows",
        "No API is configured",
        "[api.fallback]",
    ):
        assert each in text
    assert "So that staying has a price" in text


def test_with_apis_and_a_price_of_the_box_nothing_is_left_to_set_up(run: RunDir) -> None:
    text = words(shown())
    assert "fast would take" in text
    assert "[api.fallback]" not in text
    assert "So that staying has a price" not in text


def test_what_is_assumed_and_the_deadline_change_the_answer(run: RunDir) -> None:
    at = shown()
    at.number_input(key="compare_hours_demo").set_value(0.5).run()
    assert "within 30 min" in words(at)
    at.number_input(key="compare_hours_demo").set_value(2000.0).run()
    assert "within 83.3 days" in words(at)
    at.number_input(key="compare_streams").set_value(7).run()
    assert "7 requests at once, assumed" in words(at)
    assert "within 83.3 days" in words(at)  # what was chosen stays
    at.selectbox(key="compare_model").set_value("openai/gpt-oss-120b").run()
    assert not at.exception
    assert "gpt-oss-120b" in words(at)


def test_another_api_can_be_looked_at_dataset_by_dataset(run: RunDir) -> None:
    at = shown()
    at.selectbox(key="compare_api_demo").set_value("unpriced").run()
    assert not at.exception
    assert "60 requests a minute" in words(at)


def test_a_press_asks_for_prices_and_tells_what_came_of_it(run: RunDir, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []
    monkeypatch.setattr(compare_setup, "fetch_prices", lambda address, now: asked.append(address) or 12)
    at = shown()
    assert asked == []  # nothing is fetched by looking
    at.button(key="compare_refresh").click().run()
    assert len(asked) == 3
    assert "https://fast.example/v1: prices of 12 models." in words(at)


def test_a_deadline_of_the_run_is_what_is_planned_for(tmp_path: Path) -> None:
    run = make_compared(tmp_path)
    deadline = (datetime.now(UTC) + timedelta(hours=30)).isoformat()
    beat(run, replace(status_of(two_datasets()), deadline=deadline), time.time())
    with holding_lock(run, time.time()):
        at = shown()
    assert at.number_input(key="compare_hours_demo").value == pytest.approx(30, abs=0.05)
