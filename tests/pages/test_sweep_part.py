"""The part of the page Engine about sweeps: what it shows in each state, and what its buttons write."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from streamlit.testing.v1 import AppTest

from backend import sweeps
from backend.run_dir import RunDir, open_state
from backend.sweeps import SweepLevel, SweepProgress, SweepState
from pages.sweep_buttons import levels_in
from tests.forecast.made_observation import dataset, observation, steady
from tests.made_forecast import status_of, write_forecast
from tests.made_run import beat as write_beat
from tests.made_run import holding_lock, make_run
from tests.pages.shown import elements, open_page, words

STORY = {1: 62.0, 4: 207.0, 8: 370.0, 16: 385.0, 32: 393.0, 48: 409.0}


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[RunDir]:
    """A run at 8 in flight with a forecast, and a supervisor that lives."""
    monkeypatch.setenv("HEADWAY_RUNS", str(tmp_path / "runs"))
    run, now = make_run(tmp_path), time.time()
    seen = observation(
        [dataset("alpha", prompts=20_000, in_flight_tokens=[300.0] * 8)], steady(370.0, running=8), concurrency=8
    )
    with holding_lock(run, now):
        write_beat(run, status_of(seen), now)
        write_forecast(run, seen, now)
        yield run


def swept(run: RunDir, state: SweepState, speeds: dict[int, float], *, source: str | None = None) -> None:
    with closing(open_state(run)) as con:
        sweeps.create_tables(con)
        sweep_id = sweeps.begin(
            con, at=1.0, who="me", asked=list(STORY), level_limit_s=60, replicas=1, source=source
        )  # fmt: skip
        for level, speed in speeds.items():
            sweeps.add_level(con, sweep_id, SweepLevel(concurrency=level, tokens_per_s=speed))
        if state is SweepState.RUNNING:
            progress = SweepProgress(level=8, stage="measuring", in_flight=8, since=1.0, tokens_per_s=368.0)
            sweeps.note_progress(con, sweep_id, progress)
        else:
            sweeps.end(con, sweep_id, state, None, 2.0)


def wishes(run: RunDir) -> list[tuple[str, dict[str, object]]]:
    with closing(open_state(run, read_only=True)) as con:
        return [(row["action"], json.loads(row["value"])) for row in con.execute("SELECT * FROM intents ORDER BY id")]


def page() -> AppTest:
    return open_page("engine.py", run="demo")


def press(at: AppTest, label: str) -> AppTest:
    return next(b for b in at.button if b.label == label).click().run()


def said(at: AppTest) -> str:
    """Plain texts, a dialog's among them."""
    return "\n".join(text.value for text in at.text)


def charts(at: AppTest) -> int:
    return sum(kind == "plotly_chart" for kind, _ in elements(at))


def test_a_run_that_was_never_swept_offers_a_sweep_that_asks_first(run: RunDir) -> None:
    at = page()
    assert "was never swept" in words(at)
    press(at, "Sweep…")
    assert wishes(run) == []
    assert at.text_input("sweep_levels").value == "1, 4, 8, 16, 32, 48"
    assert "up to 12 min altogether. 7 requests in flight finish first." in said(at)
    press(at, "Sweep")

    assert wishes(run) == [("sweep", {"levels": list(STORY), "level_limit_s": 120.0, "drain": True})]


def test_levels_that_are_none_cannot_be_swept(run: RunDir) -> None:
    at = page()
    at.session_state["sweep_levels"] = "8, 2"
    press(at, "Sweep…")
    assert "each larger than the one before" in said(at)
    assert "Sweep" not in [b.label for b in at.button]


def test_a_running_sweep_is_told_with_its_levels_and_can_be_cancelled(run: RunDir) -> None:
    swept(run, SweepState.RUNNING, {1: 62.0, 4: 207.0})
    at = page()
    shown = words(at)
    assert "Measures 8 in flight (level 3 of 6): 368 tokens/s so far." in shown
    assert "207" in shown
    assert "Sweep…" not in [b.label for b in at.button]
    press(at, "Cancel sweep")

    assert wishes(run) == [("sweep", {"cancel": True})]


def test_a_finished_sweep_shows_its_chart_and_its_recommendation_is_taken_over_after_saying_what_changes(
    run: RunDir,
) -> None:
    swept(run, SweepState.FINISHED, STORY)
    at = page()
    assert charts(at) == 1
    assert "Knee: 8 in flight" in words(at)
    assert "Recommended: 48 in flight." in words(at)
    press(at, "Use 48 in flight…")
    assert wishes(run) == []
    assert "Concurrency 8 → 48. The run would end" in said(at)
    press(at, "Use 48")

    assert wishes(run) == [("set", {"key": "concurrency", "value": 48})]


def test_without_a_supervisor_nothing_can_be_pressed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HEADWAY_RUNS", str(tmp_path / "runs"))
    run = make_run(tmp_path)
    swept(run, SweepState.FINISHED, STORY)
    at = page()
    assert "Knee: 8 in flight" in words(at)
    assert not {"Sweep…", "Cancel sweep"} & {b.label for b in at.button}


@pytest.mark.parametrize("text", ["", ",", "1;2", "0,1", "4,4", "8,2", "1.5", "-1", "٣", "1," + "9" * 30])
def test_what_is_no_list_of_levels(text: str) -> None:
    assert levels_in(text) is None


def test_a_list_of_levels_may_hold_blanks_and_a_last_comma() -> None:
    assert levels_in(" 1, 4,8 , ") == [1, 4, 8]
