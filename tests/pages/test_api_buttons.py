"""Measure, switch, back: each says its price or its bound first, and one press is one wish."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest
from streamlit.testing.v1 import AppTest

from backend.records import ApiState, ApiStatus
from backend.run_dir import RunDir, open_state
from tests.made_comparison import APIS, RENTED, SOLD, make_compared
from tests.made_forecast import status_of, two_datasets
from tests.made_run import beat, holding_lock
from tests.pages.shown import open_page, words

FAST = ApiStatus(
    "fast", ApiState.OPEN, "<b>words of a server</b>", in_flight=12, concurrency=64, finished_samples=40, spent_usd=0.5,
    cap_usd=25, completion_tokens=80_000, usd_per_minute=0.25, projected_usd=18.0,
)  # fmt: skip
CAPPED = SOLD.replace("concurrency = 8", "concurrency = 8\nmax_new_tokens = 4000")


@pytest.fixture
def left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> RunDir:
    """Nobody works on it."""
    monkeypatch.setenv("HEADWAY_RUNS", str(tmp_path / "runs"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    run = make_compared(tmp_path, CAPPED + RENTED + APIS)
    said = status_of(two_datasets())
    datasets = (replace(said.datasets[0], route="both:fast", max_new_tokens=4000), *said.datasets[1:])
    beat(run, replace(said, apis=(FAST, ApiStatus("unpriced", ApiState.IDLE)), datasets=datasets), time.time())
    return run


@pytest.fixture
def run(left: RunDir) -> Iterator[RunDir]:
    """Its supervisor lives."""
    with holding_lock(left, time.time()):
        yield left


def wishes(run: RunDir) -> list[tuple[str, str, object]]:
    with closing(open_state(run)) as con:
        rows = con.execute("SELECT subject, action, value FROM intents ORDER BY id").fetchall()
    return [(row["subject"], row["action"], json.loads(row["value"])) for row in rows]


def page() -> AppTest:
    at = open_page("compare.py", run="demo")
    assert not at.exception, [e.message for e in at.exception]
    return at


def press(at: AppTest, label: str) -> AppTest:
    found = next(b for b in at.button if b.label == label)
    at = found.click().run()
    assert not at.exception, [e.message for e in at.exception]
    return at


def test_apis_are_told_with_their_spend_and_words_of_a_server_stay_text(run: RunDir) -> None:
    text = words(page())
    for each in ("goes to the engine and fast.", "$0.50 of $25.00", "$0.25", "$18.00", "&lt;b&gt;words of a server"):
        assert each in text


def test_a_probe_tells_its_worst_price_first_and_is_one_wish(run: RunDir) -> None:
    at = press(page(), "Measure fast…")
    assert "at most $0.18 by the prices (run.toml)" in words(at)
    assert "Never more than $1.00" in words(at)
    assert wishes(run) == []
    press(at, "Measure fast")
    assert wishes(run) == [("run", "probe", {"api": "fast", "prompts": 32, "cap_usd": 1.0})]


def test_an_api_without_a_price_is_not_probed(run: RunDir) -> None:
    at = press(page(), "Measure unpriced…")
    assert "is not known: nothing is sent without a price" in words(at)
    assert not any(b.label == "Measure unpriced" for b in at.button)


def test_a_switch_tells_what_bounds_it_and_writes_a_wish_for_each_dataset(run: RunDir) -> None:
    at = press(page(), "Switch to fast…")
    assert "It never costs more than $25.00 altogether; $0.50 of that are spent." in words(at)
    press(at, "Switch to fast")
    assert wishes(run) == [("dataset:alpha", "route", {"to": "fast"}), ("dataset:beta", "route", {"to": "fast"})]


def test_a_press_leads_back_to_the_engine(run: RunDir) -> None:
    press(page(), "Back to local")
    assert wishes(run) == [("dataset:alpha", "route", {"to": "local"})]


def test_without_a_supervisor_there_is_nothing_to_press(left: RunDir) -> None:
    at = page()
    assert not any("Measure" in b.label or "Switch" in b.label for b in at.button)
    assert "Nobody works on this run" in words(at)
