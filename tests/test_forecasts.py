"""Forecasts are kept with what they rest on, thinned when they are old, and scored when something has ended."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from backend import forecasts
from backend.forecast.calibrate import Range, Score, recalibrate
from backend.forecast.forecast import forecast
from backend.forecasts import Said
from backend.run_dir import RunDir, RunDirError, open_state
from tests.forecast.test_observation_json import observed

HELD = Range(500.0, 900.0, 1200.0)
TOO_SOON = Range(100.0, 200.0, 300.0)
HELD_SCORE = Score(900.0, HELD, 900.0)


@pytest.fixture
def run(tmp_path: Path) -> RunDir:
    folder = RunDir(tmp_path / "runs" / "one")
    folder.create_folders()
    return folder


@pytest.fixture
def con(run: RunDir) -> Iterator[sqlite3.Connection]:
    with closing(open_state(run)) as connection:
        forecasts.create_tables(connection)
        yield connection


def say(
    con: sqlite3.Connection, at: float, remaining: Range, *, plan: int = 0, base: Range | None = None, corrected_by: int = 0
) -> Said:
    """The run had been active for `at` seconds at `at`."""
    calibration = recalibrate([HELD_SCORE] * corrected_by)
    told = replace(forecast(observed(), calibration), remaining=remaining)
    said = Said(at, plan, at, True, "each minute", told)
    forecasts.write(con, said, replace(told, remaining=base or remaining), observed())
    return said


def test_what_was_said_is_read_back_as_it_was(run: RunDir, con: sqlite3.Connection) -> None:
    assert forecasts.read_newest(run) is None
    assert forecasts.read_basis(run) is None
    said = say(con, 60.0, HELD)
    assert forecasts.read_newest(run) == said
    basis = forecasts.read_basis(run)
    assert basis is not None
    assert basis.at == 60.0
    assert basis.observation.datasets[0].name == "B1"
    assert [r.range for r in forecasts.read_ranges(run)] == [HELD]
    assert len(forecasts.read_ranges(run, "dataset:B2")) == 1


def test_a_run_that_never_started_has_none(tmp_path: Path) -> None:
    empty = RunDir(tmp_path / "none")
    assert forecasts.read_newest(empty) is None
    assert (forecasts.read_ranges(empty), forecasts.read_scores(empty), forecasts.read_own_results(empty)) == ([], [], [])


def test_every_forecast_of_the_last_plan_is_scored_at_the_end(run: RunDir, con: sqlite3.Connection) -> None:
    say(con, 10.0, TOO_SOON, plan=0)  # before the budget was changed: no score
    say(con, 100.0, TOO_SOON, plan=1)
    say(con, 200.0, HELD, plan=1)
    say(con, 400.0, HELD, plan=1)
    say(con, 500.0, HELD, plan=1)
    scored = forecasts.score(con, "run", plan=1, active_s=1000.0, at=5000.0)
    assert scored is not None
    assert (scored.forecasts, scored.held) == (4, 3)
    assert scored.sample.active_s == 400.0
    assert scored.sample.actual_s == 600.0
    assert forecasts.read_scores(run) == [scored]
    assert forecasts.held_share([scored]) == 0.75


def test_what_was_never_said_is_not_scored(con: sqlite3.Connection) -> None:
    assert forecasts.score(con, "dataset:B9", plan=0, active_s=10.0, at=10.0) is None


def test_a_result_is_learnt_from_by_what_the_built_in_calibration_said(run: RunDir, con: sqlite3.Connection) -> None:
    say(con, 100.0, HELD, base=TOO_SOON)
    scored = forecasts.score(con, "run", plan=0, active_s=900.0, at=900.0)
    assert scored is not None
    assert scored.held == 1
    assert scored.sample.forecast == TOO_SOON


def test_results_of_all_runs_in_the_folder_are_own_results(run: RunDir, con: sqlite3.Connection) -> None:
    other = RunDir(run.root.parent / "two")
    other.create_folders()
    with closing(open_state(other)) as second:
        forecasts.create_tables(second)
        say(second, 100.0, HELD)
        forecasts.score(second, "run", plan=0, active_s=1000.0, at=1000.0)
    (run.root.parent / "junk").mkdir()
    (run.root.parent / "junk" / "state.sqlite").write_bytes(b"this is no database, and long enough to be looked at")
    assert len(forecasts.read_own_results(run)) == 1


def test_a_simulators_results_teach_nothing_about_a_real_server(run: RunDir, con: sqlite3.Connection) -> None:
    demo = RunDir(run.root.parent / "demo")
    demo.create_folders()
    demo.config.write_text('[engine]\nkind = "simulated"\n')
    run.config.write_text('[engine]\nkind = "local"\n')
    with closing(open_state(demo)) as second:
        forecasts.create_tables(second)
        say(second, 100.0, HELD)
        forecasts.score(second, "run", plan=0, active_s=1000.0, at=1000.0)
    assert forecasts.read_own_results(run) == []
    assert len(forecasts.read_own_results(demo)) == 1


def test_ten_own_results_move_the_ranges_and_say_so(run: RunDir, con: sqlite3.Connection) -> None:
    say(con, 1.0, HELD)
    for n in range(9):
        say(con, 1000.0 * n + 100, TOO_SOON)
        forecasts.score(con, f"dataset:D{n}", plan=0, active_s=20_000.0, at=20_000.0 + n)  # never said: none
        forecasts.score(con, "run", plan=0, active_s=1000.0 * n + 900, at=30_000.0 + n)
    basis = forecasts.read_basis(run)
    assert basis is not None
    assert basis.calibration.own_results == 0
    say(con, 9100.0, TOO_SOON)
    forecasts.score(con, "run", plan=0, active_s=9999.0, at=40_000.0)
    basis = forecasts.read_basis(run)
    assert basis is not None
    assert basis.calibration.own_results == 0  # what was said last does not know of them: a what-if starts from the same
    say(con, 50_000.0, TOO_SOON, corrected_by=10)
    basis = forecasts.read_basis(run)
    assert basis is not None
    assert basis.calibration.own_results == 10
    assert basis.calibration.own_middle_log > 0  # all of them came later than was said


def test_after_a_day_one_forecast_in_ten_minutes_is_kept_and_every_range(run: RunDir, con: sqlite3.Connection) -> None:
    told = replace(forecast(observed()), datasets=())
    for minute in range(1500):
        forecasts.write(con, Said(60.0 * minute, 0, 60.0 * minute, True, "each minute", told), told, observed())
    old = con.execute("SELECT count(*) FROM forecasts WHERE at < ?", (3000.0,)).fetchone()[0]
    assert old == 5
    assert con.execute("SELECT count(*) FROM forecasts WHERE at >= 5000").fetchone()[0] > 1400
    assert len(forecasts.read_ranges(run)) == 1500


def test_a_forecast_of_another_version_is_said_in_words(run: RunDir, con: sqlite3.Connection) -> None:
    con.execute("INSERT INTO forecasts (at, plan, active_s, active, reason, forecast) VALUES (1, 0, 1, 1, '', '{}')")
    con.execute("INSERT INTO forecast_inputs VALUES (1, 1, '{\"active_s\": 3}')")
    with pytest.raises(RunDirError, match="another version of Headway"):
        forecasts.read_newest(run)
    with pytest.raises(RunDirError, match="another version of Headway"):
        forecasts.read_basis(run)


def test_what_has_ended_is_scored_once_however_often_a_new_life_finds_it_ended(con: sqlite3.Connection) -> None:
    for at in (100.0, 200.0):
        say(con, at, HELD)
    first = forecasts.score(con, "run", plan=0, active_s=1000.0, at=1000.0)
    assert first is not None
    assert first.forecasts == 2
    say(con, 1500.0, Range(0.0, 0.0, 0.0))
    assert forecasts.score(con, "run", plan=0, active_s=2000.0, at=900.0) is None  # the clock was set back meanwhile
    say(con, 2100.0, HELD)
    again = forecasts.score(con, "run", plan=0, active_s=3000.0, at=3000.0)
    assert again is not None
    assert again.forecasts == 1
