"""The Forecast page says when a run ends and what would make it sooner; what-ifs change nothing before they are confirmed."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path

import pytest
from streamlit.testing.v1 import AppTest
from streamlit.testing.v1.element_tree import NumberInput

from backend.forecast.calibrate import Range
from backend.forecast.forecast import forecast
from backend.run_dir import RunDir, open_state
from tests.forecast.made_observation import dataset, observation, steady
from tests.made_forecast import status_of, two_datasets, write_finished, write_forecast
from tests.made_run import beat, holding_lock, make_run
from tests.pages.shown import open_page, words

SEEN = two_datasets()


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[RunDir]:
    """A run at work since an hour, with about five hours to go."""
    monkeypatch.setenv("HEADWAY_RUNS", str(tmp_path / "runs"))
    made, now = make_run(tmp_path), time.time()
    write_finished(made, SEEN, now)
    beat(made, status_of(SEEN), now)
    write_forecast(made, SEEN, now - 10, earlier=[(600.0, 0, "each minute", 1.2)])
    with holding_lock(made, now):
        yield made


def wishes(run: RunDir) -> list[tuple[str, dict[str, object]]]:
    with open_state(run, read_only=True) as con:
        rows = con.execute("SELECT subject, value FROM intents ORDER BY id").fetchall()
    return [(row["subject"], json.loads(row["value"])) for row in rows]


def open_it(run: RunDir) -> AppTest:
    at = open_page("forecast.py", run=run.name)
    assert not at.exception, [e.message for e in at.exception]
    return at


def press(at: AppTest, key: str) -> AppTest:
    at.button(key).click().run()
    assert not at.exception, [e.message for e in at.exception]
    return at


def told(at: AppTest) -> str:
    """Plain texts, those of a dialog among them."""
    return "\n".join(each.value for each in at.text)


def field(at: AppTest, name: str) -> NumberInput:
    return next(each for each in at.number_input if each.label == name)


def test_a_run_at_work_has_its_range_its_charts_and_what_it_assumes(run: RunDir) -> None:
    at = open_it(run)
    seen = words(at)
    assert "Done " in seen
    assert ", most likely " in seen
    for said in ("Finished tokens and where they are going", "How the range moved", "If answers are longer", "extrapolation"):
        assert said in seen
    assert "measured, n = 2,000" in seen
    assert "▸ " in seen


def test_a_long_run_is_asked_for_a_faster_way_and_the_options_have_prices(run: RunDir) -> None:
    seen = words(open_it(run))
    assert "Is there a faster way?" in seen
    assert "more than the 4.0 h" in seen
    assert "Let it run" in seen
    assert "of alpha&#x27;s answers cut off" in seen
    assert "fewer samples" in seen


def test_a_what_if_shows_the_new_range_beside_the_present_one_and_changes_nothing(run: RunDir) -> None:
    at = open_it(run)
    assert "With these changes" not in words(at)
    field(at, "Samples at most").set_value(3000)
    at.run()
    seen = words(at)
    assert "With these changes" in seen
    assert "sooner" in seen
    assert "fewer samples" in seen
    assert wishes(run) == []


def test_what_cannot_be_imagined_is_left_out(run: RunDir) -> None:
    at = open_it(run)
    field(at, "Samples at most").set_value(1_000_000)
    field(at, "Cap on new tokens").set_value(1_000_000)
    field(at, "Requests in flight").set_value(64)  # as it is
    at.run()
    assert "With these changes" not in words(at)
    assert "can only be lowered here" in words(at)


def test_apply_asks_first_and_then_writes_each_wish_once(run: RunDir) -> None:
    at = open_it(run)
    at.selectbox(f"what-if-{run.name}-dataset").select("alpha").run()
    field(at, "Samples at most").set_value(3000)
    field(at, "Cap on new tokens").set_value(2048)
    at.run()
    press(at, "apply-form")
    assert "alpha: at most 3,000 samples" in told(at)
    assert wishes(run) == []
    press(at, "dialog-agree")
    wanted = [
        ("run", {"key": "datasets.alpha.max_new_tokens", "value": 2048}),
        ("run", {"key": "datasets.alpha.max_samples", "value": 3000}),
    ]
    assert wishes(run) == wanted


def test_an_option_can_be_applied_as_well(run: RunDir) -> None:
    at = open_it(run)
    press(at, "apply-option-0")
    press(at, "dialog-agree")
    assert len(wishes(run)) >= 1


def test_what_a_wish_is_refused_for_is_told_and_none_is_written(run: RunDir) -> None:
    at = open_it(run)
    field(at, "Samples at most").set_value(3000)
    field(at, "Requests in flight").set_value(50_000)
    at.run()
    press(at, "apply-form")
    press(at, "dialog-agree")
    assert "must be a whole number from 1 to 20000" in words(at)
    assert wishes(run) == []


def test_replicas_are_imagined_and_how_to_get_them_is_said(run: RunDir) -> None:
    at = open_it(run)
    field(at, "Replicas").set_value(2)
    at.run()
    assert "With these changes" in words(at)
    press(at, "apply-form")
    assert "engine.replicas = 2" in told(at)
    assert not [button for button in at.button if button.key == "dialog-agree"]


def test_a_deadline_is_set_and_dropped_here(run: RunDir) -> None:
    at = open_it(run)
    press(at, "deadline-set")
    subject, value = wishes(run)[0]
    assert (subject, value["key"]) == ("run", "deadline")
    assert datetime.fromisoformat(str(value["value"])).tzinfo is not None


def test_a_deadline_marks_the_options_that_make_it(run: RunDir) -> None:
    now = time.time()
    left = _remaining()
    deadline = datetime.fromtimestamp(now + 0.8 * left.p50).astimezone().isoformat(timespec="seconds")
    beat(run, status_of(SEEN, deadline=deadline), now)
    seen = words(open_it(run))
    assert "The deadline is " in seen
    assert "✓ in time" in seen
    assert "too late" in seen


def test_what_is_over_is_not_asked_for_a_faster_way(run: RunDir) -> None:
    write_forecast(run, observation([dataset("alpha", "held"), dataset("beta", "held")]), time.time())
    seen = words(open_it(run))
    assert "Nothing is left that goes on by itself" in seen
    assert "Ways to be done sooner" not in seen
    assert "Is there a faster way?" not in seen


def _remaining() -> Range:
    found = forecast(SEEN).remaining
    assert found is not None
    return found


def test_what_stands_below_the_answer_is_drawn_anew_when_another_plan_is_forecast(run: RunDir) -> None:
    at = open_it(run)
    former = at.session_state["forecast-drawn"]
    write_forecast(run, SEEN, time.time(), plan=1)
    at.run()
    assert not at.exception
    assert at.session_state["forecast-drawn"] != former


def test_an_end_beyond_every_calendar_is_told_in_words(run: RunDir) -> None:
    crawling = observation([dataset("alpha", prompts=10**9), dataset("beta", "waiting")], steady(0.001), speed_curve=None)
    write_forecast(run, crawling, time.time())
    assert "more than a thousand years" in words(open_it(run))
