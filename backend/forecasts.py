"""Forecasts as `state.sqlite` keeps them: what was said when, what it rested on, and how often it held.

The supervisor writes, the report reads. Each forecast leaves a range for the run and each dataset (kept for ever: they are
scored when it ends) and itself with its assumptions (after a day one in ten minutes is kept). The newest observation is kept
as it is, so that a page can ask "what if" of the same numbers.
"""

from __future__ import annotations

import json
import sqlite3
import tomllib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Final

from pydantic import TypeAdapter

from backend.forecast.calibrate import BUILT_IN, Calibration, Range, Score, recalibrate
from backend.forecast.forecast import Forecast
from backend.forecast.observation import Observation
from backend.forecast.observation_json import observation_of, to_json
from backend.heartbeat import has_table, reading
from backend.run_dir import RunDir, RunDirError

RUN: Final = "run"  # the subject of ranges over the whole run; datasets are `dataset:<name>`
EACH_MINUTE: Final = "each minute"  # the reason of a forecast without another one
THINNED_AFTER_S: Final = 86_400.0
THINNED_TO_S: Final = 600.0

_TABLES: Final = """
-- one row a forecast: `forecast` is it with its assumptions, as JSON; `plan` counts the changes of what is wanted
CREATE TABLE IF NOT EXISTS forecasts (
  id INTEGER PRIMARY KEY AUTOINCREMENT, at REAL NOT NULL, plan INTEGER NOT NULL, active_s REAL NOT NULL,
  active INTEGER NOT NULL, reason TEXT NOT NULL, forecast TEXT NOT NULL);
CREATE INDEX IF NOT EXISTS forecasts_at ON forecasts (at);
-- its ranges, in active seconds from `at` on: as said, and as the built-in calibration alone would have said
CREATE TABLE IF NOT EXISTS forecast_ranges (
  subject TEXT NOT NULL, at REAL NOT NULL, plan INTEGER NOT NULL, active_s REAL NOT NULL, p10_s REAL NOT NULL,
  p50_s REAL NOT NULL, p90_s REAL NOT NULL, base_p10_s REAL NOT NULL, base_p50_s REAL NOT NULL, base_p90_s REAL NOT NULL,
  PRIMARY KEY (subject, at)) WITHOUT ROWID;
-- one row: what the newest forecast was made from
CREATE TABLE IF NOT EXISTS forecast_inputs (
  one INTEGER PRIMARY KEY CHECK (one = 1), at REAL NOT NULL, observation TEXT NOT NULL);
-- what has ended: how many forecasts were made for it, how many ranges held, and one of them in figures, to learn from
CREATE TABLE IF NOT EXISTS forecast_scores (
  subject TEXT NOT NULL, ended_at REAL NOT NULL, forecasts INTEGER NOT NULL, held INTEGER NOT NULL, pinball REAL NOT NULL,
  active_s REAL NOT NULL, base_p10_s REAL NOT NULL, base_p50_s REAL NOT NULL, base_p90_s REAL NOT NULL,
  actual_s REAL NOT NULL, PRIMARY KEY (subject, ended_at)) WITHOUT ROWID;
"""


@dataclass(frozen=True, slots=True)
class Said:
    """A forecast as it was recorded. `at` in epoch seconds."""

    at: float
    plan: int  # which state of the wishes it was made for
    active_s: float  # seconds that the run had been active by then
    active: bool  # requests were in flight; if not, its seconds begin once they are
    reason: str  # EACH_MINUTE, or what had changed
    forecast: Forecast


@dataclass(frozen=True, slots=True)
class RangeSaid:
    """A range as it was recorded: active seconds left, at `at` (epoch seconds)."""

    at: float
    plan: int
    active_s: float
    range: Range


@dataclass(frozen=True, slots=True)
class Basis:
    """What the newest forecast was made from. `at` in epoch seconds."""

    at: float
    observation: Observation
    calibration: Calibration


@dataclass(frozen=True, slots=True)
class Scored:
    """A dataset or run that has ended, and the forecasts made for it since what is wanted last changed."""

    subject: str
    ended_at: float
    forecasts: int
    held: int  # of these ranges
    pinball: float  # mean loss of these forecasts, relative to the outcome
    sample: Score  # one of them, by the built-in calibration


def create_tables(con: sqlite3.Connection) -> None:
    """Makes what is missing."""
    con.executescript(_TABLES)


def write(con: sqlite3.Connection, said: Said, base: Forecast, observation: Observation) -> None:
    """Stores a forecast and what it rests on, in one transaction of its own. `base`: by the built-in calibration alone."""
    rows = []
    for (subject, told), (_, plain) in zip(_ranges(said.forecast), _ranges(base), strict=True):
        if told is not None and plain is not None:
            values = (told.p10, told.p50, told.p90, plain.p10, plain.p50, plain.p90)
            rows.append((subject, said.at, said.plan, said.active_s, *values))
    con.execute("BEGIN IMMEDIATE")
    try:
        con.execute(
            "INSERT INTO forecasts (at, plan, active_s, active, reason, forecast) VALUES (?, ?, ?, ?, ?, ?)",
            (said.at, said.plan, said.active_s, int(said.active), said.reason, _adapter().dump_json(said.forecast).decode()),
        )
        con.executemany("INSERT OR REPLACE INTO forecast_ranges VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)", rows)
        con.execute("INSERT OR REPLACE INTO forecast_inputs VALUES (1, ?, ?)", (said.at, json.dumps(to_json(observation))))
        _thin(con, said.at)
        con.execute("COMMIT")
    except BaseException:
        if con.in_transaction:
            con.execute("ROLLBACK")
        raise


def score(con: sqlite3.Connection, subject: str, *, plan: int, active_s: float, at: float) -> Scored | None:
    """A dataset or the run has ended at `active_s`: scores what was said of it under this plan, stores and returns it.

    None where nothing was said. A forecast made for other wishes (another budget, a pause of another dataset) was not wrong.
    What was said before it ended the last time is not scored again: a new life finds that the same datasets are done.
    """
    (scored_s,) = con.execute("SELECT max(active_s + actual_s) FROM forecast_scores WHERE subject = ?", (subject,)).fetchone()
    rows = con.execute(
        "SELECT * FROM forecast_ranges WHERE subject = ? AND plan = ? AND active_s >= ? AND active_s < ? AND p90_s > 0"
        " ORDER BY at",
        (subject, plan, scored_s or 0.0, active_s),
    ).fetchall()
    if not rows:
        return None
    told = [Score(r["active_s"], Range(r["p10_s"], r["p50_s"], r["p90_s"]), active_s - r["active_s"]) for r in rows]
    # Forecasts of one run say nearly the same: one of them, made after a third of its time, is what is learnt from.
    third = rows[0]["active_s"] + (active_s - rows[0]["active_s"]) / 3
    row = min(rows, key=lambda r: abs(r["active_s"] - third))
    base = Range(row["base_p10_s"], row["base_p50_s"], row["base_p90_s"])
    scored = Scored(
        subject=subject,
        ended_at=at,
        forecasts=len(told),
        held=sum(one.held for one in told),
        pinball=sum(one.pinball for one in told) / len(told),
        sample=Score(row["active_s"], base, active_s - row["active_s"]),
    )
    con.execute(
        "INSERT OR REPLACE INTO forecast_scores VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
        (subject, at, scored.forecasts, scored.held, scored.pinball, row["active_s"], base.p10, base.p50, base.p90,
         scored.sample.actual_s),
    )  # fmt: skip
    return scored


def read_newest(run: RunDir) -> Said | None:
    """The newest forecast; None before the first. Raises RunDirError."""
    with reading(run.state) as con:
        if con is None or not has_table(con, "forecasts"):
            return None
        row = con.execute("SELECT * FROM forecasts ORDER BY id DESC LIMIT 1").fetchone()
    return None if row is None else _said(run, row)


def read_progress(run: RunDir) -> tuple[float, int]:
    """Active seconds and plan at the newest forecast, whatever version made it; (0, 0) before the first. Raises RunDirError."""
    with reading(run.state) as con:
        if con is None or not has_table(con, "forecasts"):
            return 0.0, 0
        row = con.execute("SELECT active_s, plan FROM forecasts ORDER BY id DESC LIMIT 1").fetchone()
    return (0.0, 0) if row is None else (row["active_s"], row["plan"])


def read_ranges(run: RunDir, subject: str = RUN) -> list[RangeSaid]:
    """Every range that was ever said of the run or a dataset, oldest first. Raises RunDirError."""
    with reading(run.state) as con:
        if con is None or not has_table(con, "forecast_ranges"):
            return []
        rows = con.execute("SELECT * FROM forecast_ranges WHERE subject = ? ORDER BY at", (subject,)).fetchall()
    return [RangeSaid(r["at"], r["plan"], r["active_s"], Range(r["p10_s"], r["p50_s"], r["p90_s"])) for r in rows]


def read_reasons(run: RunDir) -> dict[int, str]:
    """Plan → what had changed when the first of its forecasts that is kept was made. Raises RunDirError."""
    with reading(run.state) as con:
        if con is None or not has_table(con, "forecasts"):
            return {}
        # the reason is that of the row with the smallest id: SQLite's bare columns
        rows = con.execute("SELECT plan, MIN(id), reason FROM forecasts GROUP BY plan").fetchall()
    return {row["plan"]: row["reason"] for row in rows if row["reason"] != EACH_MINUTE}


def read_basis(run: RunDir) -> Basis | None:
    """What the newest forecast was made from; None before the first. Raises RunDirError."""
    with reading(run.state) as con:
        if con is None or not has_table(con, "forecast_inputs"):
            return None
        row = con.execute("SELECT at, observation FROM forecast_inputs").fetchone()
    if row is None:
        return None
    try:
        observation = observation_of(json.loads(row["observation"]))
    except (ValueError, TypeError, KeyError, IndexError) as error:
        raise RunDirError(_other_version(run, error)) from None
    said = read_newest(run)
    assumed = said.forecast.assumptions if said is not None else None
    if assumed is not None and not assumed.own_results:
        return Basis(row["at"], observation, BUILT_IN)  # others' results since then must not part what-ifs from what is said
    return Basis(row["at"], observation, recalibrate([one.sample for one in read_own_results(run)]))


def read_scores(run: RunDir) -> list[Scored]:
    """What has ended in this run and was scored, oldest first. Raises RunDirError."""
    with reading(run.state) as con:
        if con is None or not has_table(con, "forecast_scores"):
            return []
        return [_scored(row) for row in con.execute("SELECT * FROM forecast_scores ORDER BY ended_at")]


def read_own_results(run: RunDir) -> list[Scored]:
    """The same of every run in the folder that holds this one: what the ranges are re-calibrated on.

    What a simulator did teaches nothing about a real server, nor the other way round. A run that cannot be read is passed
    over: its results are missing, and nothing else.
    """
    found: list[Scored] = []
    simulated = _is_simulated(run)
    for state in sorted(run.root.parent.glob("*/state.sqlite")):
        other = RunDir(Path(state).parent)
        if _is_simulated(other) is not simulated:
            continue
        try:
            found += read_scores(other)
        except RunDirError:
            continue
    return found


def held_share(scored: Sequence[Scored]) -> float | None:
    """Share of ranges that held, 0..1: each result counts once, however many forecasts were made for it. None without any."""
    return sum(one.held / one.forecasts for one in scored) / len(scored) if scored else None


def _is_simulated(run: RunDir) -> bool:
    try:
        engine = tomllib.loads(run.config.read_text()).get("engine")
    except (OSError, ValueError):
        return False
    return isinstance(engine, dict) and engine.get("kind") == "simulated"


def _ranges(forecast: Forecast) -> Iterable[tuple[str, Range | None]]:
    yield RUN, forecast.remaining
    for dataset in forecast.datasets:
        yield f"dataset:{dataset.name}", dataset.ends_in if forecast.remaining is not None else None


def _thin(con: sqlite3.Connection, now: float) -> None:
    """Of what became a day old since about the last forecast, one in ten minutes is kept."""
    until = now - THINNED_AFTER_S
    con.execute(
        "DELETE FROM forecasts WHERE at < :until AND at >= :since AND id NOT IN (SELECT min(id) FROM forecasts"
        " WHERE at < :until AND at >= :since GROUP BY cast(at / :step AS INTEGER))",
        {"until": until, "since": until - 2 * THINNED_TO_S, "step": THINNED_TO_S},
    )


@cache
def _adapter() -> TypeAdapter[Forecast]:
    return TypeAdapter(Forecast)


def _said(run: RunDir, row: sqlite3.Row) -> Said:
    try:
        forecast = _adapter().validate_json(row["forecast"])
    except ValueError as error:
        raise RunDirError(_other_version(run, error)) from None
    return Said(row["at"], row["plan"], row["active_s"], bool(row["active"]), row["reason"], forecast)


def _scored(row: sqlite3.Row) -> Scored:
    base = Range(row["base_p10_s"], row["base_p50_s"], row["base_p90_s"])
    sample = Score(row["active_s"], base, row["actual_s"])
    return Scored(row["subject"], row["ended_at"], row["forecasts"], row["held"], row["pinball"], sample)


def _other_version(run: RunDir, error: Exception) -> str:
    words = str(error).partition("\n")[0]
    return (
        f"{run.state}: its forecast cannot be understood ({words}). It was written by another version of Headway: the "
        f"next forecast, a minute after the run goes on with this version, replaces it."
    )
