"""A run's telemetry as charts want it: right, quick over two weeks, and nothing where there is nothing."""

from __future__ import annotations

import time
from contextlib import closing
from pathlib import Path

import pytest

from backend import telemetry_store
from backend.report.series import read_energy_wh, read_events_of, read_lines, read_marks, read_newest, read_window
from backend.run_dir import RunDir, RunDirError, open_state
from backend.telemetry import DriverSample, EngineSample, GpuSample
from tests.made_run import make_run, write_event

NOON = 1_800_000_000 // 3600 * 3600
TWO_WEEKS_S = 14 * 86400


@pytest.fixture
def run(tmp_path: Path) -> RunDir:
    return make_run(tmp_path)


def write(run: RunDir, *samples: object, roll_up_at: float | None = None) -> None:
    with closing(open_state(run)) as con:
        telemetry_store.create_tables(con)
        telemetry_store.write(con, samples)  # type: ignore[arg-type]
        if roll_up_at is not None:
            telemetry_store.roll_up(con, roll_up_at)


def test_a_run_that_never_started_has_no_telemetry(run: RunDir) -> None:
    assert read_lines(run, "engine_samples", ["running"], 0, NOON) == {}
    assert read_newest(run, "gpu_samples") == {}
    assert read_energy_wh(run) is None
    assert read_marks(run, 0, NOON) == []


def test_a_state_database_without_telemetry_gives_none(run: RunDir) -> None:
    open_state(run).close()
    assert read_lines(run, "engine_samples", ["running"], 0, NOON) == {}
    assert read_newest(run, "gpu_samples") == {}
    assert read_energy_wh(run) is None


def test_each_replica_is_a_line(run: RunDir) -> None:
    write(run, *(EngineSample(key=k, at=NOON + s, running=s) for k in ("0", "1") for s in range(3)))
    lines = read_lines(run, "engine_samples", ["running"], NOON, NOON + 60)
    assert {key: series.values["running"] for key, series in lines.items()} == {"0": (0, 1, 2), "1": (0, 1, 2)}


def test_a_replica_without_samples_in_the_window_is_no_line(run: RunDir) -> None:
    write(run, EngineSample(key="0", at=NOON, running=1), EngineSample(key="1", at=NOON - 5000, running=1))
    assert set(read_lines(run, "engine_samples", ["running"], NOON - 60, NOON + 60)) == {"0"}


def test_a_young_run_is_drawn_from_its_beginning_and_as_finely_as_it_was_measured(run: RunDir) -> None:
    write(run, *(EngineSample(key="0", at=NOON + s, running=s) for s in range(300)))
    lines, since = read_window(run, "engine_samples", ["running"], NOON + 300 - TWO_WEEKS_S, NOON + 300)
    assert NOON - 30 < since < NOON
    assert lines["0"].step_s == 1
    assert read_window(run, "engine_samples", ["running"], 0, 100) == ({}, 0)


def test_what_is_old_is_no_present_value(run: RunDir) -> None:
    write(run, GpuSample(key="GPU-a", at=NOON, power_w=300), GpuSample(key="GPU-a", at=NOON + 1, power_w=310))
    assert read_newest(run, "gpu_samples", NOON + 5)["GPU-a"]["power_w"] == 310
    assert read_newest(run, "gpu_samples", NOON + 60) == {}
    assert read_newest(run, "gpu_samples")["GPU-a"]["at"] == NOON + 1


def test_energy_is_counted_once_whatever_was_rolled_up(run: RunDir) -> None:
    end = NOON + 3 * 3600
    samples = [GpuSample(key="GPU-a", at=at, power_w=360.0) for at in range(NOON, end)]
    write(run, *samples)
    assert read_energy_wh(run) == pytest.approx(3 * 360)
    write(run, roll_up_at=end + 100)
    assert read_energy_wh(run) == pytest.approx(3 * 360)


def test_energy_of_what_tells_no_power_is_unknown(run: RunDir) -> None:
    write(run, GpuSample(key="GPU-a", at=NOON, utilization_percent=5.0))
    assert read_energy_wh(run) is None


def test_the_marks_of_a_chart_are_the_events_of_its_window(run: RunDir) -> None:
    for second in (1, 50, 99):
        write_event(run, f"at {second}", at=NOON + second)
    assert [e.message for e in read_marks(run, NOON + 10, NOON + 99)] == ["at 50"]
    assert [e.message for e in read_events_of(run, "run.%", 2)] == ["at 50", "at 99"]
    assert read_events_of(run, "engine.%", 5) == []


def test_a_damaged_database_is_told_as_a_sentence(run: RunDir) -> None:
    run.state.write_bytes(b"no database" * 100)
    with pytest.raises(RunDirError, match="damaged"):
        read_lines(run, "engine_samples", ["running"], 0, NOON)


def test_a_chart_of_two_weeks_takes_less_than_200_ms(run: RunDir) -> None:
    begin = NOON - TWO_WEEKS_S
    with closing(open_state(run)) as con:
        telemetry_store.create_tables(con)
        # as two weeks leave it: minutes of 30 days, hours, and the last two hours in seconds
        for table, kind, keys in (("engine_samples", EngineSample, 2), ("driver_samples", DriverSample, 1)):
            names = [n for n in ("decode_tokens_per_s", "running", "token_usage") if kind is EngineSample] or ["req_per_s"]
            columns, marks = ", ".join(names), ", ".join("?" * len(names))
            insert = f"INSERT INTO {table} (resolution_s, key, at, samples, {columns}) VALUES (?, ?, ?, ?, {marks})"
            con.execute("BEGIN")
            for key in map(str, range(keys)):
                for step, first in ((60, begin), (3600, begin), (1, NOON - 7200)):
                    values = [9.5] * len(names)
                    con.executemany(insert, ((step, key, at, step, *values) for at in range(first, NOON, step)))
            con.execute("COMMIT")
            for step in (60, 3600):
                con.execute("INSERT INTO rollups VALUES (?, ?, ?)", (table, step, NOON - 60 if step == 60 else NOON - 3600))
    took = []
    for _ in range(5):
        start = time.process_time()
        lines = read_lines(run, "engine_samples", ["decode_tokens_per_s", "running", "token_usage"], begin, NOON)
        took.append(time.process_time() - start)
    assert 300 <= len(lines["0"].at) <= 400
    assert min(took) < 0.2
