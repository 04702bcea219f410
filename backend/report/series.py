"""A run's telemetry for charts: lines over a window, the newest values, and what happened meanwhile."""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping, Sequence
from typing import Any, Final

from backend import telemetry_store
from backend.heartbeat import has_table, reading
from backend.report.views import EventView
from backend.run_dir import RunDir
from backend.telemetry_store import Series

MAX_POINTS: Final = 360  # more than a chart is wide in points costs time and shows nothing
MIN_SPAN_S: Final = 60.0
FRESH_S: Final = 15.0  # what was sampled longer ago is no present value
WINDOWS_S: Final = {
    "15 minutes": 900, "hour": 3600, "6 hours": 21_600, "day": 86_400, "week": 604_800, "2 weeks": 1_209_600,
}  # fmt: skip
EVENTS_IN_CHART: Final = 40
_LIKE: Final = ("engine.%", "run.%", "gpu.%")


def read_lines(
    run: RunDir, table: str, names: Sequence[str], since: float, until: float, *, max_points: int = MAX_POINTS
) -> dict[str, Series]:
    """Replica, GPU or dataset → the fields `names` in [since, until), epoch seconds; empty without telemetry.

    Raises RunDirError; KeyError for an unknown table or field.
    """
    with reading(run.state) as con:
        if con is None or not has_table(con, table) or not has_table(con, "rollups"):
            return {}
        lines = {}
        con.execute("BEGIN")  # rows that are being rolled up meanwhile are seen in one of both places
        for key in telemetry_store.read_keys(con, table):
            series = telemetry_store.read_series(con, table, key, since, until, max_points=max_points, names=names)
            if series.at:
                lines[key] = series
        con.execute("COMMIT")
    return lines


def read_window(run: RunDir, table: str, names: Sequence[str], since: float, until: float) -> tuple[dict[str, Series], float]:
    """As `read_lines`, and where the chart begins; read again more finely where little of the window was measured."""
    lines = read_lines(run, table, names, since, until)
    begin = begin_of(lines, since, until)
    if begin - since > (until - since) / 2:
        lines = read_lines(run, table, names, begin, until)
    return lines, begin


def begin_of(lines: Mapping[str, Series], since: float, until: float) -> float:
    """Where a chart begins: at `since`, or with the first measurement where that is later (a minute is shown at least)."""
    first = min((series.at[0] for series in lines.values() if series.at), default=since)
    return max(since, min(first - 0.02 * (until - first), until - MIN_SPAN_S))


def read_newest(run: RunDir, table: str, now: float | None = None) -> dict[str, dict[str, Any]]:
    """Replica, GPU or dataset → its newest sample (`at` and every field); with `now`, only those that are fresh.

    Raises RunDirError; KeyError for an unknown table.
    """
    with reading(run.state) as con:
        if con is None or not has_table(con, table):
            return {}
        return telemetry_store.read_latest(con, table, 0.0 if now is None else now - FRESH_S)


def read_energy_wh(run: RunDir) -> float | None:
    """What the run's GPUs used while they were measured, in W·h; None where no GPU tells its power. Raises RunDirError."""
    with reading(run.state) as con:
        if con is None or not has_table(con, "gpu_samples") or not has_table(con, "rollups"):
            return None
        keys = telemetry_store.read_keys(con, "gpu_samples")
        joules = [telemetry_store.read_sum(con, "gpu_samples", key, "power_w") for key in keys]
    known = [j for j in joules if j is not None]
    return sum(known) / 3600 if known else None


def read_marks(run: RunDir, since: float, until: float) -> list[EventView]:
    """What happened to the engine, the GPUs and the run in [since, until), oldest first, the latest few. Raises RunDirError."""
    chosen = " OR ".join("kind LIKE ?" for _ in _LIKE)
    return _events(run, f"at >= ? AND at < ? AND ({chosen})", (since, until, *_LIKE), EVENTS_IN_CHART)


def read_events_of(run: RunDir, kinds: str, limit: int) -> list[EventView]:
    """The latest events whose kind is `kinds` (SQL's LIKE), oldest first. Raises RunDirError."""
    return _events(run, "kind LIKE ?", (kinds,), limit)


def _events(run: RunDir, where: str, values: tuple[Any, ...], limit: int) -> list[EventView]:
    query = f"SELECT at, kind, subject, severity, message, who FROM events WHERE {where} ORDER BY at DESC, id DESC LIMIT ?"
    with reading(run.state) as con:
        if con is None or not has_table(con, "events"):
            return []
        rows: list[sqlite3.Row] = con.execute(query, (*values, limit)).fetchall()
    return [EventView(*tuple(row)) for row in reversed(rows)]
