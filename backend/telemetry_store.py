"""How `state.sqlite` keeps telemetry: a row a second for two hours, a row a minute for 30 days, a row an hour for ever.
The statements are `telemetry_sql.py`'s. The supervisor writes and rolls up, the report reads.
"""

from __future__ import annotations

import math
import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Final, cast

from backend.telemetry import TABLES, RollUp, Sample
from backend.telemetry_sql import WordsUnion, columns_of, insert_statement, quoted, read_statement, roll_up_statement

RAW_S: Final = 1
MINUTE_S: Final = 60
HOUR_S: Final = 3600
# How long a resolution is kept, in seconds, from fine to coarse; None: for ever.
KEPT_S: Final[dict[int, int | None]] = {RAW_S: 2 * 3600, MINUTE_S: 30 * 86400, HOUR_S: None}
# A bucket is rolled up only when it ended this long ago: a sample taken just before its end may be written just after.
GRACE_S: Final = 3

_TABLE_OF: Final = {kind: table for table, kind in TABLES.items()}


@dataclass(frozen=True, slots=True)
class Series:
    """A chart's worth of one series: `values[field][i]` belongs to `at[i]` (epoch seconds, start of its span)."""

    step_s: int  # what a point covers
    at: tuple[int, ...]
    values: dict[str, tuple[float | str | None, ...]]


def create_tables(con: sqlite3.Connection) -> None:
    """Makes what is missing, columns too: a run of an older Headway goes on with a newer one."""
    for table in TABLES:
        con.execute(
            f"CREATE TABLE IF NOT EXISTS {table} (resolution_s INTEGER NOT NULL, key TEXT NOT NULL, at INTEGER NOT NULL,"
            " samples INTEGER NOT NULL, PRIMARY KEY (resolution_s, key, at)) WITHOUT ROWID"
        )
        there = {row[1] for row in con.execute(f"PRAGMA table_info({table})")}
        for name, column in columns_of(table).items():
            if name not in there:
                con.execute(f'ALTER TABLE {table} ADD COLUMN "{name}" {column["type"]}')
    # Up to when finer rows have become rows of this resolution (epoch seconds, excluded).
    con.execute(
        "CREATE TABLE IF NOT EXISTS rollups (table_name TEXT NOT NULL, resolution_s INTEGER NOT NULL,"
        " done_until INTEGER NOT NULL, PRIMARY KEY (table_name, resolution_s)) WITHOUT ROWID"
    )


def write(con: sqlite3.Connection, samples: Iterable[Sample]) -> None:
    """Stores samples in one transaction of its own. Two of one series within a second: the later one stays."""
    with _transaction(con):
        for sample in samples:
            table = _TABLE_OF[type(sample)]
            values = [getattr(sample, name) for name in columns_of(table)]
            con.execute(insert_statement(table), [RAW_S, sample.key, int(sample.at), 1, *values])


def roll_up(con: sqlite3.Connection, now: float) -> None:
    """Makes minutes of seconds and hours of minutes, and drops what is older than it is kept. Call it each minute.

    Each step makes its rows, notes how far it came and drops old rows in ONE transaction, and what is made again is
    replaced: killed at any moment, nothing is counted twice and nothing is dropped that has not been rolled up.
    """
    con.create_aggregate("words_union", 1, cast(Any, WordsUnion))
    for table in TABLES:
        for finer, coarser in pairwise(KEPT_S):
            with _transaction(con):
                _roll_up_once(con, table, finer, coarser, now)


def read_series(
    con: sqlite3.Connection,
    table: str,
    key: str,
    since: float,
    until: float,
    *,
    max_points: int,
    names: Sequence[str] | None = None,
) -> Series:
    """The fields `names` (default: all) of one series in [since, until), in about `max_points` points.

    Takes the coarsest resolution that still gives so many points and that is kept from `since` on; its newest part,
    which is not rolled up yet, comes from finer rows. Seconds without a sample make no point. Raises KeyError for an
    unknown table or field.
    """
    columns = columns_of(table)
    chosen = tuple(columns if names is None else names)
    con.create_aggregate("words_union", 1, cast(Any, WordsUnion))
    start, end = int(since), int(until)
    wanted_s = max(RAW_S, -(-(end - start) // max(1, max_points)))
    done = _done(con, table)
    kept = [r for r, kept_s in KEPT_S.items() if kept_s is None or done.get(MINUTE_S, 0) - start <= kept_s]
    resolution_s = max((r for r in kept if r <= wanted_s), default=kept[0])
    step_s = -(-wanted_s // resolution_s) * resolution_s
    rows: list[tuple[Any, ...]] = []
    query = read_statement(table, chosen)
    for part_s in sorted((r for r in KEPT_S if r <= resolution_s), reverse=True):
        part_end = end if part_s == RAW_S else min(end, done.get(part_s, 0))
        if part_end > start:
            bounds = {"from": part_s, "key": key, "since": start, "until": part_end, "step": step_s}
            rows += [tuple(row) for row in con.execute(query, bounds)]
            start = part_end
    at = tuple(row[0] for row in rows)
    return Series(step_s, at, {name: tuple(row[2 + i] for row in rows) for i, name in enumerate(chosen)})


def read_sum(con: sqlite3.Connection, table: str, key: str, name: str) -> float | None:
    """The sum of a field over every sample there ever was: of a rate per second, sampled each second, the amount.

    None where it was never known. Raises KeyError for an unknown table or field.
    """
    if columns_of(table)[name]["roll_up"] is not RollUp.MEAN:
        raise KeyError(f"{name}: the sum of a field is kept only where rows are joined by their mean")
    done = _done(con, table)
    query = (
        f'SELECT SUM("{name}" * samples) FROM {table} WHERE resolution_s = ? AND key = ? AND at >= ? AND at < ?'
        f' AND "{name}" IS NOT NULL'
    )
    total: float | None = None
    start = 0.0
    for resolution_s in sorted(KEPT_S, reverse=True):
        end = math.inf if resolution_s == RAW_S else done.get(resolution_s, 0)
        part = con.execute(query, (resolution_s, key, start, end)).fetchone()[0]
        total = total if part is None else (total or 0.0) + part
        start = max(start, end)
    return total


def read_keys(con: sqlite3.Connection, table: str) -> list[str]:
    """The series that a table holds (replicas, GPUs, datasets), sorted."""
    return sorted({key for resolution_s in KEPT_S for key in _keys(con, table, resolution_s)})


def read_latest(
    con: sqlite3.Connection, table: str, since: float, *, keys: Sequence[str] | None = None
) -> dict[str, dict[str, Any]]:
    """Each series (of `keys`) that was written since `since` → the fields of its newest row and "at" (epoch seconds)."""
    names = ("at", *columns_of(table))
    query = f"SELECT {quoted(names)} FROM {table} WHERE resolution_s = {RAW_S} AND key = ? AND at >= ? ORDER BY at DESC LIMIT 1"
    asked = _keys(con, table, RAW_S) if keys is None else keys
    found = {key: con.execute(query, (key, int(since))).fetchone() for key in asked}
    return {key: dict(zip(names, row, strict=True)) for key, row in found.items() if row is not None}


def _roll_up_once(con: sqlite3.Connection, table: str, finer: int, coarser: int, now: float) -> None:
    done = _done(con, table)
    ready = (int(now) - GRACE_S) // coarser * coarser
    if finer != RAW_S:
        ready = min(ready, done.get(finer, 0) // coarser * coarser)
    # A clock that was set back must not leave a gap: begin again at the present.
    begin = min(done.get(coarser, 0), ready)
    keys = _keys(con, table, finer)
    for key in keys:
        bounds = {"from": finer, "key": key, "since": begin, "until": ready, "step": coarser}
        con.execute(roll_up_statement(table), bounds)
    con.execute("INSERT OR REPLACE INTO rollups VALUES (?, ?, ?)", (table, coarser, ready))
    oldest = min(int(now) - (KEPT_S[finer] or 0), ready)
    for key in keys:
        con.execute(f"DELETE FROM {table} WHERE resolution_s = ? AND key = ? AND at < ?", (finer, key, oldest))


def _done(con: sqlite3.Connection, table: str) -> dict[int, int]:
    query = "SELECT resolution_s, done_until FROM rollups WHERE table_name = ?"
    return {row[0]: row[1] for row in con.execute(query, (table,))}


def _keys(con: sqlite3.Connection, table: str, resolution_s: int) -> list[str]:
    # From key to key through the index: DISTINCT would read every row.
    query = f"SELECT MIN(key) FROM {table} WHERE resolution_s = ? AND key > ?"
    found: list[str] = []
    while (key := con.execute(query, (resolution_s, found[-1] if found else "")).fetchone()[0]) is not None:
        found.append(key)
    return found


@contextmanager
def _transaction(con: sqlite3.Connection) -> Iterator[None]:
    con.execute("BEGIN IMMEDIATE")
    try:
        yield
    except BaseException:
        if con.in_transaction:  # SQLite has rolled back by itself where the disk is full
            con.execute("ROLLBACK")
        raise
    con.execute("COMMIT")
