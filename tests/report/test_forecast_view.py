"""What is told of a run's end: the sentence in every state, ranges as they were said, what it rests on, and the charts."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import numpy as np
import pytest

from backend import forecasts
from backend.forecast.observation import SpeedHistory
from backend.records import DatasetState, RunPhase
from backend.report.ending import EndKind, sentence
from backend.report.forecast import HISTORY_POINTS, Finished, ForecastView, Record, forecast_view, record_words
from backend.report.forecast_charts import datasets_chart, fan_chart, range_history_chart
from backend.report.headline import naive_words
from backend.report.live import LiveRuns
from backend.run_dir import RunDir, open_state
from tests.forecast.made_observation import dataset, observation
from tests.made_forecast import status_of, two_datasets, write_finished, write_forecast
from tests.made_run import beat, holding_lock, make_run, write_event

NOW = datetime(2026, 12, 1, 13, 2, tzinfo=UTC).timestamp()
SEEN = two_datasets()


@pytest.fixture
def run(tmp_path: Path) -> RunDir:
    return make_run(tmp_path)


@pytest.fixture
def at_work(run: RunDir) -> Iterator[RunDir]:
    """A run of an hour, observed as SEEN."""
    write_finished(run, SEEN, NOW)
    beat(run, status_of(SEEN), NOW)
    with holding_lock(run, NOW):
        yield run


def said_of(view: ForecastView) -> str:
    return sentence(view.ending, NOW, UTC)


def tell_event(run: RunDir, kind: str, subject: str, at: float) -> None:
    with closing(open_state(run)) as con:
        con.execute(
            "INSERT INTO events (at, kind, subject, severity, message, who, details) VALUES (?, ?, ?, 'info', ?, 'x', '{}')",
            (at, kind, subject, kind),
        )


def test_a_run_at_work_is_told_as_moments(at_work: RunDir) -> None:
    said = write_forecast(at_work, SEEN, NOW)
    view = forecast_view(at_work, NOW)
    assert view.ending.kind is EndKind.GOING
    assert view.ending.span is not None
    assert said.forecast.remaining is not None
    assert view.ending.span.p50 == NOW + said.forecast.remaining.p50
    assert said_of(view).startswith("Done today ")
    assert ", most likely 1" in said_of(view)


def test_simple_extrapolation_is_the_same_on_every_page(at_work: RunDir) -> None:
    write_forecast(at_work, SEEN, NOW)
    live = LiveRuns(lambda: at_work.root.parent, lambda: NOW)
    naive_s = forecast_view(at_work, NOW).naive_s
    assert naive_s is not None
    assert live.answer("demo", 0, "15m").naive == naive_words(naive_s)


def test_a_run_that_does_not_work_is_told_as_work_that_waits(at_work: RunDir) -> None:
    write_forecast(at_work, SEEN, NOW, active=False)
    view = forecast_view(at_work, NOW)
    assert view.ending.kind is EndKind.STANDING
    assert said_of(view).endswith(" h of work once it runs.")
    assert view.band is None
    assert [row.end for row in view.datasets] == [None, None]


def test_a_dead_supervisor_makes_nothing_go_on(run: RunDir) -> None:
    beat(run, status_of(SEEN), NOW - 60)
    write_forecast(run, SEEN, NOW - 60)
    run.lock.touch()
    assert forecast_view(run, NOW).ending.kind is EndKind.STANDING


def test_a_range_that_lies_in_the_past_is_no_answer(at_work: RunDir) -> None:
    write_forecast(at_work, SEEN, NOW - 40 * 3600)
    assert said_of(forecast_view(at_work, NOW)).startswith("Done any moment, expected ")


def test_where_nothing_can_be_said_the_reason_is(run: RunDir) -> None:
    assert said_of(forecast_view(run, NOW)) == "No forecast yet: the run has not been started."
    beat(run, status_of(SEEN), NOW)
    with holding_lock(run, NOW):
        assert said_of(forecast_view(run, NOW)) == "No forecast yet: the first one comes within a minute of work."
        nothing = SpeedHistory(10.0, np.zeros(0), np.zeros(0))
        write_forecast(run, observation([dataset("alpha"), dataset("beta", "waiting")], nothing, speed_curve=None), NOW)
        assert "no speed is known" in said_of(forecast_view(run, NOW))


def test_datasets_that_wait_for_somebody_are_named(at_work: RunDir) -> None:
    write_forecast(at_work, observation([dataset("alpha"), dataset("beta", "paused")]), NOW)
    assert said_of(forecast_view(at_work, NOW)).endswith(", without beta.")
    write_forecast(at_work, observation([dataset("alpha", "held"), dataset("beta", "held")]), NOW + 1)
    assert said_of(forecast_view(at_work, NOW + 1)) == ("Nothing is left that goes on by itself: alpha and beta wait for you.")
    nothing = SpeedHistory(10.0, np.zeros(0), np.zeros(0))  # of a new life that found them held
    held = observation([dataset("alpha", "held"), dataset("beta", "held")], nothing, speed_curve=None)
    write_forecast(at_work, held, NOW + 2)
    beat(at_work, status_of(held), NOW + 2)
    assert said_of(forecast_view(at_work, NOW + 2)) == ("Nothing is left that goes on by itself: alpha and beta wait for you.")


def test_a_finished_run_tells_when_it_did(run: RunDir) -> None:
    write_forecast(run, SEEN, NOW - 90)
    beat(run, status_of(SEEN, phase=RunPhase.FINISHED), NOW - 60)
    run.lock.touch()
    view = forecast_view(run, NOW)
    assert said_of(view) == "Finished today 13:01."
    assert view.naive_s is None


def test_the_history_is_thinned_and_keeps_the_changes_of_what_is_wanted(at_work: RunDir) -> None:
    earlier = [(3600.0 - i, 0, "each minute", 1.5) for i in range(2000)]
    earlier += [(1500.0, 1, "alpha.max_samples = 10000", 1.2), (1400.0, 1, "each minute", 1.1)]
    write_forecast(at_work, SEEN, NOW, earlier=earlier, plan=1)
    view = forecast_view(at_work, NOW)
    assert len(view.history) <= HISTORY_POINTS + 5
    assert view.history[-1].at == NOW
    assert [(mark.at, mark.words) for mark in view.changes] == [(NOW - 1500, "alpha.max_samples = 10000")]
    assert NOW - 1500 in [one.at for one in view.history]
    spread = [one.end.p90 - one.end.p10 for one in view.history]
    assert spread[0] > spread[-1]


def test_a_dataset_begins_about_when_the_one_before_it_ends(at_work: RunDir) -> None:
    tell_event(at_work, "dataset.running", "dataset:alpha", NOW - 3600)
    write_forecast(at_work, SEEN, NOW)
    alpha, beta = forecast_view(at_work, NOW).datasets
    assert (alpha.begun_at, alpha.begins_at) == (NOW - 3600, None)
    assert alpha.end is not None
    assert beta.begins_at == alpha.end.p50
    assert beta.end is not None
    assert beta.end.p50 > alpha.end.p50


def test_each_assumption_has_its_source_and_what_hangs_on_it(at_work: RunDir) -> None:
    write_forecast(at_work, SEEN, NOW)
    view = forecast_view(at_work, NOW)
    rows = {row.name: row for row in view.assumptions}
    assert view.ending.remaining is not None
    speed = rows["Speed in the long run"]
    assert speed.source == "measured over 60 min, the shape from a sweep"
    assert speed.later_s == pytest.approx(view.ending.remaining.p50 / 9)
    assert "n = 2,000" in rows["Mean completion of alpha"].source
    assert rows["Mean completion of beta"].source == "prior: the run's other datasets"
    # a budget ends beta: if its answers are longer, they are fewer
    assert (rows["Mean completion of beta"].later_s or 0) < 0.02 * (rows["Mean completion of alpha"].later_s or 0)
    assert rows["Requests in flight"].later_s is not None
    assert rows["What ends each dataset"].value == "alpha by its samples; beta by its budget"
    assert rows["Width of the ranges"].source == "the built-in calibration"


def test_the_record_is_told_with_its_number() -> None:
    assert "None has been put to the test here" in record_words(Record(0, None, 0))
    few = record_words(Record(3, 2 / 3, 0))
    assert "67 %, n = 3" in few
    assert "built-in calibration is used" in few
    assert "below ten" not in record_words(Record(10, 0.5, 0))
    assert record_words(Record(29, 0.83, 29)) == (
        "8 of 10 ranges should hold. So far: 83 %, n = 29; the ranges are corrected by that."
    )


@pytest.mark.parametrize("dark", [False, True])
def test_the_charts_are_drawn_from_the_view_alone(at_work: RunDir, dark: bool) -> None:
    tell_event(at_work, "dataset.running", "dataset:alpha", NOW - 3600)
    write_event(at_work, "the server was restarted", NOW - 600, severity="warning")
    write_forecast(at_work, SEEN, NOW, earlier=[(1200.0, 0, "each minute", 1.3), (600.0, 1, "concurrency = 32", 1.1)], plan=1)
    view = forecast_view(at_work, NOW)
    fan, moved, rows = (draw(view, UTC, dark) for draw in (fan_chart, range_history_chart, datasets_chart))
    assert fan is not None
    assert view.ending.span is not None
    late = datetime.fromtimestamp(view.ending.span.p90, UTC)
    assert abs(datetime.fromisoformat(fan.layout.xaxis.range[1]).replace(tzinfo=UTC) - late) < timedelta(minutes=30)
    assert "the server was restarted" in str(fan.layout.annotations)
    assert moved is not None
    assert len(moved.data[2].y) == 3
    assert "concurrency = 32" in str(moved.layout.annotations)
    assert rows is not None
    assert "beta" in str(rows.layout.annotations)


def test_the_line_of_what_is_finished_ends_where_the_band_begins(at_work: RunDir) -> None:
    write_forecast(at_work, SEEN, NOW - 40)
    view = forecast_view(at_work, NOW)
    assert view.finished.at[-1] > NOW - 40
    fan = fan_chart(view)
    assert fan is not None
    stopped = replace(view, finished=Finished((NOW - 600, NOW - 590, NOW - 300, NOW - 290), (1.0, 2.0, 2.0, 3.0)))
    broken = fan_chart(stopped)
    assert broken is not None
    assert list(broken.data[1].y) == [1.0, 2.0, None, 2.0, 3.0]
    begins = fan.data[1].x[0]
    assert fan.data[0].x[-1] <= begins
    assert Finished((1.0, 2.0, 3.0), (5.0, 6.0, 7.0)).until(2.0) == Finished((1.0, 2.0), (5.0, 6.0))


def test_without_anything_measured_there_is_no_chart(run: RunDir) -> None:
    view = forecast_view(run, NOW)
    assert [draw(view) for draw in (fan_chart, range_history_chart, datasets_chart)] == [None, None, None]


def test_a_finished_run_keeps_its_past(run: RunDir) -> None:
    write_finished(run, SEEN, NOW)
    tell_event(run, "dataset.running", "dataset:alpha", NOW - 3600)
    tell_event(run, "dataset.done", "dataset:alpha", NOW - 60)
    over = replace(SEEN, datasets=tuple(replace(one, state=DatasetState.DONE) for one in SEEN.datasets))
    beat(run, status_of(over, phase=RunPhase.FINISHED), NOW)
    run.lock.touch()
    view = forecast_view(run, NOW)
    assert view.datasets[0].ended_at == NOW - 60
    assert fan_chart(view) is not None
    assert datasets_chart(view) is not None


def test_a_reason_is_kept_with_its_plan(run: RunDir) -> None:
    write_forecast(run, SEEN, NOW, earlier=[(60.0, 1, "beta is dropped", 1.0)], plan=1)
    assert forecasts.read_reasons(run) == {1: "beta is dropped"}
