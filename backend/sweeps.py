"""Sweeps of the concurrency, as `state.sqlite` keeps them, and the curve that follows: the supervisor writes, all others read.

A sweep is a measurement like telemetry: with state.sqlite it is lost, and can be made again. What the curve is used for is told
in `forecast/`; how a sweep is made in `job/sweep_plan.py`.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, fields
from enum import StrEnum
from typing import Any, Final

from backend.forecast.curve import SpeedCurve
from backend.heartbeat import has_table, reading
from backend.run_dir import RunDir

ASSUMED_EFFICIENCY: Final = 1.0  # of one more replica, until several were measured: replicas share no GPU
READ_BACK: Final = 20  # sweeps that are looked at for a curve

Points = tuple[tuple[float, float], ...]


class SweepState(StrEnum):
    """How far a sweep is. Its finished levels count in each state."""

    RUNNING = "running"
    FINISHED = "finished"  # every level is measured (or was read from a file)
    CANCELLED = "cancelled"  # by somebody's wish
    ENDED = "ended"  # it could not go on; the reason says why
    INTERRUPTED = "interrupted"  # its supervisor died


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepLevel:
    """One level as measured, all replicas together."""

    concurrency: int  # requests kept in flight
    tokens_per_s: float  # completion tokens
    half_width_tokens_per_s: float | None = None  # of the 95 % interval; None where it is not known
    known: bool = False  # within 3 %; else its time was up before
    measured_s: float | None = None
    running: float | None = None  # mean requests at work in the engine; the others wait in its queue
    first_token_s: float | None = None  # median time to the first token of requests started at this level
    token_usage: float | None = None  # mean share of the KV pool in use, 0..1, of the fullest replica
    context_tokens: float | None = None  # mean tokens that a running request held in the KV pool

    @property
    def tokens_per_s_a_request(self) -> float:
        """What one request of this level sees."""
        return self.tokens_per_s / self.concurrency


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepProgress:
    """What a running sweep does now."""

    level: int
    stage: str  # "lowering", "filling", "measuring"
    in_flight: int
    since: float  # epoch seconds, of the stage
    tokens_per_s: float | None = None  # so far
    half_width_tokens_per_s: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Sweep:
    """One sweep. Times are epoch seconds."""

    id: int
    at: float
    who: str
    source: str | None  # the file it was read from; None: measured here
    asked: tuple[int, ...]  # levels
    level_limit_s: float | None
    replicas: int  # that were measured
    state: SweepState
    reason: str | None = None  # why it ended before its last level
    ended_at: float | None = None
    progress: SweepProgress | None = None
    levels: tuple[SweepLevel, ...] = ()


@dataclass(frozen=True, slots=True)
class Curve:
    """Tokens a second of all replicas of a run by the requests running on all of them together."""

    points: Points
    sweep: Sweep  # where it comes from
    replicas: int  # that it holds for
    efficiency: float | None  # by which other numbers of replicas were reckoned; None: measured with this number
    efficiency_is_assumed: bool = False


_LEVEL_FIELDS: Final = tuple(field.name for field in fields(SweepLevel))
_TABLES: Final = """
CREATE TABLE IF NOT EXISTS sweeps (
  id INTEGER PRIMARY KEY AUTOINCREMENT, at REAL NOT NULL, who TEXT NOT NULL, source TEXT, asked TEXT NOT NULL,
  level_limit_s REAL, replicas INTEGER NOT NULL, state TEXT NOT NULL, reason TEXT, ended_at REAL, progress TEXT);
CREATE TABLE IF NOT EXISTS sweep_levels (
  sweep_id INTEGER NOT NULL, concurrency INTEGER NOT NULL, tokens_per_s REAL NOT NULL, half_width_tokens_per_s REAL,
  known INTEGER NOT NULL, measured_s REAL, running REAL, first_token_s REAL, token_usage REAL, context_tokens REAL,
  PRIMARY KEY (sweep_id, concurrency)) WITHOUT ROWID;
"""


# -- writing: the supervisor's --------------------------------------------------------------------------------------------


def create_tables(con: sqlite3.Connection) -> None:
    """Makes what is missing."""
    con.executescript(_TABLES)


def begin(
    con: sqlite3.Connection, *, at: float, who: str, asked: Sequence[int], level_limit_s: float | None, replicas: int,
    source: str | None = None,
) -> int:  # fmt: skip
    """A sweep begins. Returns its id."""
    values = (at, who, source, json.dumps(list(asked)), level_limit_s, replicas, SweepState.RUNNING.value)
    sql = "INSERT INTO sweeps (at, who, source, asked, level_limit_s, replicas, state) VALUES (?, ?, ?, ?, ?, ?, ?)"
    return int(con.execute(sql, values).lastrowid or 0)


def note_progress(con: sqlite3.Connection, sweep_id: int, progress: SweepProgress) -> None:
    """What it does now."""
    con.execute("UPDATE sweeps SET progress = ? WHERE id = ?", (json.dumps(asdict(progress)), sweep_id))


def add_level(con: sqlite3.Connection, sweep_id: int, level: SweepLevel) -> None:
    """A level is measured; one of the same concurrency is replaced."""
    marks = ", ".join("?" * (1 + len(_LEVEL_FIELDS)))
    values = [sweep_id, *(getattr(level, name) for name in _LEVEL_FIELDS)]
    con.execute(f"INSERT OR REPLACE INTO sweep_levels (sweep_id, {', '.join(_LEVEL_FIELDS)}) VALUES ({marks})", values)


def end(con: sqlite3.Connection, sweep_id: int, state: SweepState, reason: str | None, at: float) -> None:
    """It is over."""
    sql = "UPDATE sweeps SET state = ?, reason = ?, ended_at = ?, progress = NULL WHERE id = ?"
    con.execute(sql, (state.value, reason, at, sweep_id))


# -- reading --------------------------------------------------------------------------------------------------------------


def read_sweeps(con: sqlite3.Connection, *, limit: int = READ_BACK) -> list[Sweep]:
    """The newest first; empty where none was ever made."""
    if not has_table(con, "sweep_levels"):
        return []
    rows = con.execute("SELECT * FROM sweeps ORDER BY id DESC LIMIT ?", (limit,)).fetchall()
    return [_sweep(con, row) for row in rows]


def sweeps_of(run: RunDir, *, limit: int = READ_BACK) -> list[Sweep]:
    """The same of a run. Raises RunDirError where state.sqlite cannot be read."""
    with reading(run.state) as con:
        return [] if con is None else read_sweeps(con, limit=limit)


def newest_curve(sweeps: Iterable[Sweep], replicas: int) -> Curve | None:
    """The curve of the newest sweep that came to its end, else of the newest with two levels and more; None without one.

    `sweeps`: the newest first. A sweep of another number of replicas is scaled: each replica has as many requests as then, and
    one more replica brings `efficiency` of what the first ones do.
    """
    over = [sweep for sweep in sweeps if sweep.state is not SweepState.RUNNING and sweep.levels]
    whole = [sweep for sweep in over if sweep.state is SweepState.FINISHED]
    chosen = next(iter(whole), None) or next((sweep for sweep in over if len(sweep.levels) > 1), None)
    if chosen is None:
        return None
    points = points_of(chosen)
    if chosen.replicas == replicas:
        return Curve(points, chosen, replicas, None)
    measured = measured_efficiency(over)
    efficiency = ASSUMED_EFFICIENCY if measured is None else measured
    ratio = replicas / chosen.replicas
    gain = 1 + (ratio - 1) * efficiency
    scaled = tuple((n * ratio, speed * gain) for n, speed in points)
    return Curve(scaled, chosen, replicas, efficiency, efficiency_is_assumed=measured is None)


def measured_efficiency(sweeps: Sequence[Sweep]) -> float | None:
    """What more replicas brought, over what they would if none disturbed another; None until two numbers were measured.

    The newest sweep with more than one replica is compared with the newest with fewer, both with as many requests a replica.
    """
    more = next((sweep for sweep in sweeps if sweep.replicas > 1 and sweep.levels), None)
    if more is None:
        return None
    fewer = next((sweep for sweep in sweeps if sweep.replicas < more.replicas and sweep.levels), None)
    if fewer is None:
        return None
    a_replica = min(sweep.levels[-1].concurrency / sweep.replicas for sweep in (more, fewer))
    speeds = [float(SpeedCurve(points_of(sweep)).at(a_replica * sweep.replicas)) for sweep in (more, fewer)]
    return (speeds[0] / speeds[1] - 1) / (more.replicas / fewer.replicas - 1)


def points_of(sweep: Sweep) -> Points:
    """[(requests in flight, tokens/s)], ascending."""
    return tuple((float(level.concurrency), level.tokens_per_s) for level in sweep.levels)


def _sweep(con: sqlite3.Connection, row: sqlite3.Row) -> Sweep:
    levels = con.execute(
        f"SELECT {', '.join(_LEVEL_FIELDS)} FROM sweep_levels WHERE sweep_id = ? ORDER BY concurrency", (row["id"],)
    )
    values: dict[str, Any] = {key: row[key] for key in ("id", "at", "who", "source", "level_limit_s", "replicas")}
    return Sweep(
        **values,
        asked=tuple(json.loads(row["asked"])),
        state=SweepState(row["state"]),
        reason=row["reason"],
        ended_at=row["ended_at"],
        progress=None if row["progress"] is None else SweepProgress(**json.loads(row["progress"])),
        levels=tuple(SweepLevel(**{**dict(level), "known": bool(level["known"])}) for level in levels),
    )
