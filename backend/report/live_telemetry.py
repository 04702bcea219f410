"""What the live view takes from a run's telemetry: what is now, the last quarter of an hour, and the charts' series."""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from backend.report.figures import Latest, Trend, Trends
from backend.report.live_series import STRETCHES, Points, first_sample_at, mean_of_last, read_points, step_for
from backend.telemetry_store import read_keys, read_latest

TREND_S: Final = 900
TREND_STEP_S: Final = 15
SPEED_POINTS: Final = 20  # the naive guess is made from the decode rate of so many points,
SPEED_OF_S: Final = 600  # else from what finished in so long: it comes later and in jumps
MIN_SPEED_OF_S: Final = 60
FRESH_S: Final = 10  # older telemetry says nothing about now
EVENTS_AT_ONCE: Final = 80
FINISHED_POINTS: Final = 300
ALL: Final = "run"  # the driver's series over all datasets
_EVENTS: Final = """SELECT id, at, kind, subject, severity, message FROM events
WHERE at >= ? AND (severity != 'info' OR kind IN ('engine.ready', 'engine.adopted', 'engine.stopped', 'run.started', 'gpu.back')
  OR (kind LIKE 'dataset.%' AND kind NOT IN ('dataset.waiting', 'dataset.draining') AND message NOT LIKE '%draining → running'
    AND message NOT LIKE '%waiting → done%'))
ORDER BY id DESC LIMIT ?"""


@dataclass(frozen=True, slots=True)
class Slow:
    """What changes so slowly that it is read every quarter of a minute."""

    trends: Trends
    gpu_trends: Mapping[str, Trend]
    speed_tokens_per_s: float | None  # of the last minutes: decoded, else finished
    dataset_tokens_per_s: Mapping[str, float | None]  # likewise, last minute
    replicas: tuple[str, ...]
    engine_keys: tuple[str, ...]  # those replicas that ever told their decode rate
    began_at: int | None  # first sample, epoch seconds


@dataclass(frozen=True, slots=True)
class Now:
    """The newest rows; empty where there is none that is fresh."""

    driver: Mapping[str, Any] = field(default_factory=dict)
    engine: Latest = field(default_factory=dict)
    gpus: Latest = field(default_factory=dict)
    decode_tokens_per_s: float | None = None  # all replicas, mean of the last 10 s


@dataclass(frozen=True, slots=True)
class Charts:
    """The series of the two charts; `source` says what the throughput is of: "engine" or "finished"."""

    source: str
    throughput: Points
    finished: Points


def read_slow(con: sqlite3.Connection, now: float) -> Slow:
    """Trends, speeds and which series there are."""
    telling = "SELECT 1 FROM engine_samples WHERE key = ? AND decode_tokens_per_s IS NOT NULL LIMIT 1"
    replicas = tuple(read_keys(con, "engine_samples"))
    keys = tuple(k for k in replicas if con.execute(telling, (k,)).fetchone())
    since = now - TREND_S
    engine = read_points(con, "engine_samples", keys, ["decode_tokens_per_s"], start=since, now=now, step_s=TREND_STEP_S)
    names = ["useful_tokens_per_s", "req_per_s", "completion_tokens_total"]
    driver = read_points(con, "driver_samples", [ALL], names, start=since, now=now, step_s=TREND_STEP_S)
    gpus = {
        key: read_points(con, "gpu_samples", [key], ["utilization_percent"], start=since, now=now, step_s=TREND_STEP_S)
        for key in read_keys(con, "gpu_samples")
    }
    trends = Trends(
        _on_axis(engine, "decode_tokens_per_s", since, now),
        _on_axis(driver, "useful_tokens_per_s", since, now),
        _on_axis(driver, "req_per_s", since, now),
    )
    return Slow(
        trends=trends,
        gpu_trends={key: _on_axis(points, "utilization_percent", since, now) for key, points in gpus.items()},
        speed_tokens_per_s=_decode_speed(trends.decode_tokens_per_s) or _finished_speed(driver, now),
        dataset_tokens_per_s=_dataset_speeds(con, now),
        replicas=replicas,
        engine_keys=keys,
        began_at=first_sample_at(con, "driver_samples", ALL),
    )


def read_now(con: sqlite3.Connection, slow: Slow, now: float) -> Now:
    """What was measured in the last seconds, of the series that are known."""
    since = now - FRESH_S
    engine = read_latest(con, "engine_samples", since, keys=slow.replicas)
    decode = read_points(con, "engine_samples", list(engine), ["decode_tokens_per_s"], start=since, now=now, step_s=1)
    return Now(
        driver=read_latest(con, "driver_samples", since, keys=(ALL,)).get(ALL, {}),
        engine=engine,
        gpus=read_latest(con, "gpu_samples", since, keys=tuple(slow.gpu_trends)),
        decode_tokens_per_s=mean_of_last(decode.values["decode_tokens_per_s"], FRESH_S),
    )


def read_charts(con: sqlite3.Connection, slow: Slow, *, since: int, stretch: str, now: float) -> Charts:
    """Both charts' points from `since` on (epoch seconds; 0: the whole stretch)."""
    began = slow.began_at if slow.began_at is not None else now
    span = STRETCHES[stretch] or max(60.0, now - began)
    step = step_for(span)
    start = max(since, now - span)
    if slow.engine_keys:
        source, table, keys, name = "engine", "engine_samples", slow.engine_keys, "decode_tokens_per_s"
    else:
        source, table, keys, name = "finished", "driver_samples", (ALL,), "useful_tokens_per_s"
    throughput = read_points(con, table, keys, [name], start=start, now=now, step_s=step)
    finished_step = step_for(max(60.0, now - began), FINISHED_POINTS)
    finished = read_points(
        con, "driver_samples", [ALL], ["completion_tokens_total"], start=max(since, began), now=now, step_s=finished_step
    )
    return Charts(
        source,
        Points(step, throughput.at, {"tokens_per_s": throughput.values[name]}),
        Points(finished_step, finished.at, {"tokens": finished.values["completion_tokens_total"]}),
    )


def read_events(con: sqlite3.Connection, since: float) -> list[dict[str, Any]]:
    """The newest events that belong on a chart's time axis, oldest first."""
    rows = con.execute(_EVENTS, (since, EVENTS_AT_ONCE)).fetchall()
    return [dict(row) | {"words": _words(row["kind"], row["subject"], row["message"])} for row in reversed(rows)]


def _words(kind: str, subject: str, message: str) -> str:
    """Few enough for a label: "B2 done", "engine ready"; what is not known well keeps its own words."""
    of, _, name = subject.partition(":")
    what = kind.partition(".")[2].replace("_", " ").replace(".", " ")  # "retrying.over"
    if of == "dataset":
        return f"{name} {what}"
    if kind in ("engine.ready", "engine.adopted", "engine.stopped"):
        return f"engine {what}" if name in ("", "0") else f"engine {name} {what}"
    return "run started" if kind == "run.started" else message.rstrip(".")


def _on_axis(points: Points, name: str, since: float, now: float) -> Trend:
    """A value a step over the whole trend, None where there is none: a gap stays a gap."""
    values = dict(zip(points.at, points.values[name], strict=True))
    step = points.step_s
    first, last = int(since) // step * step, int(now) // step * step
    return tuple(values.get(at) for at in range(first, last + 1, step))


def _decode_speed(trend: Trend) -> float | None:
    """Of the last five minutes, without those in which nothing ran; None where less than a minute is left."""
    busy = [v for v in trend[-SPEED_POINTS:] if v]
    return sum(busy) / len(busy) if len(busy) * TREND_STEP_S >= MIN_SPEED_OF_S else None


def _finished_speed(driver: Points, now: float) -> float | None:
    known = [
        (at, total)
        for at, total in zip(driver.at, driver.values["completion_tokens_total"], strict=True)
        if total is not None and at >= now - SPEED_OF_S
    ]
    if len(known) < 2 or known[-1][0] - known[0][0] < MIN_SPEED_OF_S:
        return None
    return (known[-1][1] - known[0][1]) / (known[-1][0] - known[0][0])


def _dataset_speeds(con: sqlite3.Connection, now: float) -> dict[str, float | None]:
    speeds = {}
    for key in read_keys(con, "driver_samples"):
        points = read_points(con, "driver_samples", [key], ["useful_tokens_per_s"], start=now - 60, now=now, step_s=15)
        speeds[key] = mean_of_last(points.values["useful_tokens_per_s"], 4)
    return speeds
