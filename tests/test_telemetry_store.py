"""How state.sqlite keeps telemetry: exact roll-ups, nothing counted twice, small and quick over two weeks."""

from __future__ import annotations

import sqlite3
import time
from dataclasses import fields
from pathlib import Path

import pytest

from backend import telemetry_store
from backend.telemetry import TABLES, DriverSample, EngineSample, GpuSample, HostSample, RollUp

NOON = 1_800_000_000 // 3600 * 3600  # a whole hour
NUMBERS = ("power_w", "energy_j", "temperature_c", "throttle_reasons", "utilization_percent")


@pytest.fixture
def con(tmp_path: Path) -> sqlite3.Connection:
    con = sqlite3.connect(tmp_path / "state.sqlite", isolation_level=None)
    con.execute("PRAGMA journal_mode=WAL")
    con.execute("PRAGMA synchronous=NORMAL")  # as `run_dir.open_state` opens it
    telemetry_store.create_tables(con)
    return con


def gpu(at: float, **values: float | str | None) -> GpuSample:
    return GpuSample(key="GPU-a", at=at, **values)  # type: ignore[arg-type]


def rows(con: sqlite3.Connection, table: str, resolution_s: int, columns: str) -> list[tuple]:
    query = f"SELECT {columns} FROM {table} WHERE resolution_s = ? ORDER BY key, at"
    return [tuple(row) for row in con.execute(query, (resolution_s,))]


def test_every_field_says_how_it_is_rolled_up() -> None:
    for kind in TABLES.values():
        for field in fields(kind):
            assert field.name in ("key", "at") or isinstance(field.metadata["roll_up"], RollUp)


def test_a_minute_is_mean_maximum_last_and_union_of_its_seconds(con: sqlite3.Connection) -> None:
    telemetry_store.write(
        con,
        [
            gpu(NOON, power_w=100, energy_j=5, temperature_c=50, throttle_reasons="power cap", memory_used_bytes=7),
            gpu(NOON + 30.9, power_w=300, energy_j=9, temperature_c=70, throttle_reasons=""),
            gpu(NOON + 59, power_w=None, energy_j=None, temperature_c=60, throttle_reasons="heat,power cap"),
            gpu(NOON + 60, power_w=1),
        ],
    )
    telemetry_store.roll_up(con, NOON + 100)
    found = rows(con, "gpu_samples", 60, "key, at, samples, power_w, energy_j, temperature_c, throttle_reasons")
    assert found == [("GPU-a", NOON, 3, 200.0, 9.0, 70.0, "heat,power cap")]


def test_what_was_never_known_stays_unknown(con: sqlite3.Connection) -> None:
    telemetry_store.write(con, [gpu(NOON + s) for s in range(60)])
    telemetry_store.roll_up(con, NOON + 70)
    assert rows(con, "gpu_samples", 60, ", ".join(NUMBERS)) == [(None,) * len(NUMBERS)]


def test_a_minute_that_is_not_over_is_not_rolled_up(con: sqlite3.Connection) -> None:
    telemetry_store.write(con, [gpu(NOON + s, power_w=1) for s in range(60)])
    telemetry_store.roll_up(con, NOON + 61)
    assert rows(con, "gpu_samples", 60, "at") == []


def test_rolling_up_again_changes_nothing(con: sqlite3.Connection) -> None:
    telemetry_store.write(con, [gpu(NOON + s, power_w=s) for s in range(180)])
    telemetry_store.roll_up(con, NOON + 200)
    first = rows(con, "gpu_samples", 60, "at, samples, power_w")
    telemetry_store.roll_up(con, NOON + 200)
    telemetry_store.roll_up(con, NOON + 201)
    assert rows(con, "gpu_samples", 60, "at, samples, power_w") == first
    assert [row[1] for row in first] == [60, 60, 60]


def test_a_roll_up_killed_half_way_leaves_nothing_behind(con: sqlite3.Connection, tmp_path: Path) -> None:
    """The connection dies while the statement that notes the progress runs; the next life makes the same minutes."""
    telemetry_store.write(con, [gpu(NOON + s, power_w=s) for s in range(120)])

    def refuse(action: int, arg: str | None, *_: object) -> int:
        noting = action == sqlite3.SQLITE_INSERT and arg == "rollups"
        return sqlite3.SQLITE_DENY if noting else sqlite3.SQLITE_OK

    con.set_authorizer(refuse)
    with pytest.raises(sqlite3.DatabaseError):
        telemetry_store.roll_up(con, NOON + 130)
    con.close()
    again = sqlite3.connect(tmp_path / "state.sqlite", isolation_level=None)
    assert rows(again, "gpu_samples", 60, "at") == []
    telemetry_store.roll_up(again, NOON + 130)
    assert rows(again, "gpu_samples", 60, "at, samples, power_w") == [(NOON, 60, 29.5), (NOON + 60, 60, 89.5)]
    again.close()


def test_an_hour_weighs_each_minute_by_its_samples(con: sqlite3.Connection) -> None:
    telemetry_store.write(con, [gpu(NOON + s, power_w=100) for s in range(60)] + [gpu(NOON + 60, power_w=700)])
    for minute in range(1, 62):
        telemetry_store.roll_up(con, NOON + 60 * minute + 5)
    [(at, samples, power_w)] = rows(con, "gpu_samples", 3600, "at, samples, power_w")
    assert (at, samples) == (NOON, 61)
    assert power_w == pytest.approx((60 * 100 + 700) / 61)


def test_seconds_are_dropped_after_two_hours_and_minutes_stay(con: sqlite3.Connection) -> None:
    telemetry_store.write(con, [gpu(NOON + s, power_w=1) for s in range(0, 3 * 3600, 10)])
    telemetry_store.roll_up(con, NOON + 3 * 3600)
    kept = rows(con, "gpu_samples", 1, "MIN(at)")
    assert kept == [(NOON + 3600,)]
    assert len(rows(con, "gpu_samples", 60, "at")) == 179
    assert rows(con, "gpu_samples", 3600, "at, samples") == [(NOON, 360), (NOON + 3600, 360)]


def test_nothing_is_dropped_that_was_not_rolled_up(con: sqlite3.Connection) -> None:
    """A supervisor that was away for a day rolls up what it finds first."""
    telemetry_store.write(con, [gpu(NOON + s, power_w=1) for s in range(600)])
    telemetry_store.roll_up(con, NOON + 86400)
    assert rows(con, "gpu_samples", 1, "at") == []
    assert sum(row[0] for row in rows(con, "gpu_samples", 60, "samples")) == 600
    assert rows(con, "gpu_samples", 3600, "samples") == [(600,)]


def test_a_clock_set_back_leaves_no_gap(con: sqlite3.Connection) -> None:
    telemetry_store.roll_up(con, NOON + 7200)
    telemetry_store.roll_up(con, NOON)
    telemetry_store.write(con, [gpu(NOON + s, power_w=1) for s in range(60)])
    telemetry_store.roll_up(con, NOON + 65)
    assert rows(con, "gpu_samples", 60, "at, samples") == [(NOON, 60)]


def test_series_do_not_mix(con: sqlite3.Connection) -> None:
    telemetry_store.write(
        con,
        [
            EngineSample(key="0", at=NOON, decode_tokens_per_s=10),
            EngineSample(key="1", at=NOON, decode_tokens_per_s=30),
            DriverSample(key="run", at=NOON, in_flight=4),
            HostSample(key="host", at=NOON, cpu_percent=3),
        ],
    )
    telemetry_store.roll_up(con, NOON + 65)
    assert rows(con, "engine_samples", 60, "key, decode_tokens_per_s") == [("0", 10.0), ("1", 30.0)]
    assert telemetry_store.read_keys(con, "engine_samples") == ["0", "1"]
    assert telemetry_store.read_keys(con, "driver_samples") == ["run"]
    assert telemetry_store.read_keys(con, "gpu_samples") == []


def test_a_short_chart_shows_each_second_and_a_gap_as_a_gap(con: sqlite3.Connection) -> None:
    telemetry_store.write(con, [gpu(NOON + s, power_w=s) for s in (0, 1, 2, 8, 9)])
    series = telemetry_store.read_series(con, "gpu_samples", "GPU-a", NOON, NOON + 10, max_points=100, names=["power_w"])
    assert series.step_s == 1
    assert series.at == tuple(NOON + s for s in (0, 1, 2, 8, 9))
    assert series.values == {"power_w": (0.0, 1.0, 2.0, 8.0, 9.0)}


def test_a_long_chart_joins_hours_minutes_and_the_newest_seconds(con: sqlite3.Connection) -> None:
    start = NOON - 40 * 86400
    hours = [(3600, start + 3600 * h, 3600) for h in range(40 * 24)]
    minutes = [(60, NOON - 3600 + 60 * m, 60) for m in range(90)]
    con.execute("BEGIN")
    con.executemany(
        "INSERT OR REPLACE INTO gpu_samples (resolution_s, key, at, samples, power_w, energy_j) VALUES (?,'GPU-a',?,?,500,1)",
        hours + minutes,
    )
    con.executemany("INSERT INTO rollups VALUES ('gpu_samples', ?, ?)", [(60, NOON + 1800), (3600, NOON)])
    con.execute("COMMIT")
    telemetry_store.write(con, [gpu(NOON + 1800 + s, power_w=100, energy_j=s) for s in range(60)])
    end = NOON + 1860
    series = telemetry_store.read_series(con, "gpu_samples", "GPU-a", start, end, max_points=1000)
    assert series.step_s == 3600
    assert series.at == (*(start + 3600 * h for h in range(40 * 24)), NOON, NOON + 1800)
    assert series.values["power_w"] == (500.0,) * 961 + (100.0,)
    assert series.values["energy_j"][-1] == 59.0


def test_an_old_stretch_is_read_from_what_is_still_kept(con: sqlite3.Connection) -> None:
    """Ten minutes of yesterday have no seconds any more: the chart has minutes."""
    telemetry_store.write(con, [gpu(NOON + s, power_w=1) for s in range(600)])
    telemetry_store.roll_up(con, NOON + 86400)
    series = telemetry_store.read_series(con, "gpu_samples", "GPU-a", NOON, NOON + 600, max_points=600)
    assert (series.step_s, len(series.at)) == (60, 10)


def test_a_full_disk_stores_nothing_of_a_batch_and_the_next_batch_goes_on(con: sqlite3.Connection) -> None:
    pages = con.execute("PRAGMA page_count").fetchone()[0]
    con.execute(f"PRAGMA max_page_count={pages}")
    with pytest.raises(sqlite3.OperationalError, match="full"):
        telemetry_store.write(con, [gpu(NOON + s, power_w=s) for s in range(10_000)])
    con.execute("PRAGMA max_page_count=1000000")
    telemetry_store.write(con, [gpu(NOON, power_w=5)])
    assert rows(con, "gpu_samples", 1, "at, power_w") == [(NOON, 5.0)]


def test_a_column_that_an_older_headway_did_not_know_is_added(tmp_path: Path) -> None:
    con = sqlite3.connect(tmp_path / "old.sqlite", isolation_level=None)
    con.execute(
        "CREATE TABLE host_samples (resolution_s INTEGER NOT NULL, key TEXT NOT NULL, at INTEGER NOT NULL,"
        " samples INTEGER NOT NULL, cpu_percent REAL, PRIMARY KEY (resolution_s, key, at)) WITHOUT ROWID"
    )
    con.execute("INSERT INTO host_samples VALUES (1, 'host', 5, 1, 7.5)")
    telemetry_store.create_tables(con)
    telemetry_store.write(con, [HostSample(key="host", at=6, disk_free_bytes=3)])
    assert rows(con, "host_samples", 1, "at, cpu_percent, disk_free_bytes") == [(5, 7.5, None), (6, None, 3.0)]
    con.close()


SERIES = {
    "gpu_samples": [f"GPU-0000000{i}-1111-2222-3333-444444444444" for i in range(8)],
    "engine_samples": [str(i) for i in range(4)],
    "driver_samples": ["run", "B1", "B2", "B3", "B4"],
    "host_samples": ["host"],
}


def fill_two_weeks(con: sqlite3.Connection, begin: int = NOON) -> int:
    """Leaves state.sqlite as two weeks of a run would (8 GPUs, 4 replicas, run and 4 datasets, host); returns their end.

    A value in every column, and rows in the order of time, as a run writes them: a B-tree filled series by series would
    be denser than a real one.
    """
    end = begin + 14 * 86400
    con.execute("BEGIN")
    for resolution_s, since in ((3600, begin), (60, begin), (1, end - 7200)):
        for table, keys in SERIES.items():
            columns = [field for field in fields(TABLES[table]) if field.metadata]
            names = [f'"{column.name}"' for column in columns]
            quoted = [f"('{key}')" for key in keys]
            noise = "(at * 7919 + length(key) * 104729 + unicode(substr(key, -1)) * 31) % 10007 / 3.0"
            values = [
                "'software power cap'" if column.metadata["type"] == "TEXT" else f"{1000 * place} + {noise}"
                for place, column in enumerate(columns)
            ]
            con.execute(
                f"WITH RECURSIVE times(at) AS (SELECT {since} UNION ALL"
                f" SELECT at + {resolution_s} FROM times WHERE at + {resolution_s} < {end}),"
                f" keys(key) AS (VALUES {', '.join(quoted)})"
                f" INSERT INTO {table} (resolution_s, key, at, samples, {', '.join(names)})"
                f" SELECT {resolution_s}, key, at, {resolution_s}, {', '.join(values)} FROM times CROSS JOIN keys"
            )
    for table in TABLES:
        con.executemany("INSERT INTO rollups VALUES (?, ?, ?)", [(table, r, end) for r in (60, 3600)])
    con.execute("COMMIT")
    con.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    return end


def test_two_weeks_take_less_than_300_mb_and_are_read_in_200_ms(con: sqlite3.Connection, tmp_path: Path) -> None:
    end = fill_two_weeks(con)
    size = sum(path.stat().st_size for path in tmp_path.iterdir())
    durations = []
    for _ in range(5):
        begin = time.perf_counter()
        series = telemetry_store.read_series(con, "engine_samples", "2", NOON, end, max_points=600)
        durations.append(time.perf_counter() - begin)
    begin = time.perf_counter()
    telemetry_store.roll_up(con, end + 70)
    rolled_s = time.perf_counter() - begin
    print(
        f"\ntwo weeks: {size:,} bytes; all fields of one series: {min(durations) * 1000:.0f} ms;"
        f" one roll-up: {rolled_s * 1000:.0f} ms"
    )
    assert size < 300e6
    assert 500 <= len(series.at) <= 605
    assert min(durations) < 0.2
