"""The command line tells when a run ends: a sentence in the reader's time, and figures."""

from __future__ import annotations

from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path

import pytest

from backend.report.status import read_status
from backend.report.status_text import status_text
from backend.report.told_end import with_end
from backend.run_dir import RunDir, open_state
from tests.made_forecast import status_of, two_datasets, write_finished, write_forecast
from tests.made_run import beat, holding_lock, make_run

NOW = datetime(2026, 12, 1, 13, 2, tzinfo=UTC).timestamp()


@pytest.fixture
def run(tmp_path: Path) -> RunDir:
    return make_run(tmp_path)


def test_a_run_at_work_says_when_it_is_done_below_its_first_sentence(run: RunDir) -> None:
    seen = two_datasets()
    write_finished(run, seen, NOW)
    beat(run, status_of(seen), NOW)
    said = write_forecast(run, seen, NOW)
    with holding_lock(run, NOW):
        view, words = with_end(run, read_status(run, NOW), UTC)
    assert view.forecast is not None
    assert said.forecast.remaining is not None
    assert view.forecast.kind == "going"
    assert view.forecast.p50_at == NOW + said.forecast.remaining.p50
    assert view.forecast.p90_s == said.forecast.remaining.p90
    assert words is not None
    assert words.startswith("Done today ")
    assert words.endswith(" (UTC).")
    assert status_text(view, words).splitlines()[1] == words


def test_before_the_first_start_there_is_no_sentence_and_the_reason(run: RunDir) -> None:
    view, words = with_end(run, read_status(run, NOW), UTC)
    assert words is None
    assert view.forecast is not None
    assert (view.forecast.kind, view.forecast.why) == ("untold", "the run has not been started")


def test_a_forecast_of_another_version_is_a_note(run: RunDir) -> None:
    write_forecast(run, two_datasets(), NOW)
    with closing(open_state(run)) as con:
        con.execute("UPDATE forecasts SET forecast = '{}'")
    view, words = with_end(run, read_status(run, NOW), UTC)
    assert (view.forecast, words) == (None, None)
    assert "The forecast cannot be read" in view.notes[-1]
