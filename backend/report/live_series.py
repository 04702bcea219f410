"""What the live charts are made of: a chosen stretch of telemetry in at most 600 points, or only what came since.

A point covers a whole number of seconds and begins at a multiple of it, so that what is asked later fits to what a browser
already has. The last point may still grow: it is sent again with the next answer.
"""

from __future__ import annotations

import sqlite3
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from backend.telemetry_store import HOUR_S, KEPT_S, MINUTE_S, RAW_S, read_series

MAX_POINTS: Final = 600
STRETCHES: Final[Mapping[str, int | None]] = {"15m": 900, "3h": 10_800, "all": None}  # seconds; None: since the first sample
_STEPS_S: Final = (1, 2, 5, 10, 20, 30, 60, 120, 300, 600, 1200, 1800, 3600, 7200, 14_400, 43_200, 86_400)


@dataclass(frozen=True, slots=True)
class Points:
    """`values[name][i]` begins at `at[i]` (epoch seconds) and covers `step_s`."""

    step_s: int
    at: tuple[int, ...]
    values: dict[str, tuple[float | None, ...]]


def step_for(span_s: float, max_points: int = MAX_POINTS) -> int:
    """Seconds a point covers, so that `span_s` has at most so many; never finer than what is kept for so long."""
    kept_s = next((r for r, kept in KEPT_S.items() if kept is None or span_s <= kept), HOUR_S)
    return next((s for s in _STEPS_S if s >= kept_s and s * max_points >= span_s), _STEPS_S[-1])


def first_sample_at(con: sqlite3.Connection, table: str, key: str) -> int | None:
    """When a series begins, epoch seconds: its coarsest rows are kept for ever."""
    query = f"SELECT MIN(at) FROM {table} WHERE resolution_s = ? AND key = ?"
    found = [con.execute(query, (r, key)).fetchone()[0] for r in (HOUR_S, MINUTE_S, RAW_S)]
    known = [at for at in found if at is not None]
    return min(known) if known else None


def read_points(
    con: sqlite3.Connection, table: str, keys: Sequence[str], names: Sequence[str], *, start: float, now: float, step_s: int
) -> Points:
    """Fields `names` of `keys` from the point that holds `start` on, each summed over the keys that tell it."""
    begin = int(start) // step_s * step_s
    end = (int(now) // step_s + 1) * step_s
    count = max(1, (end - begin) // step_s)
    sums: dict[int, list[float | None]] = {}
    told: Counter[int] = Counter()  # keys that speak in a point
    for key in keys:
        series = read_series(con, table, key, begin, end, max_points=count, names=names)
        told.update({at // step_s * step_s for at in series.at})
        for i, at in enumerate(series.at):
            point = sums.setdefault(at // step_s * step_s, [None] * len(names))
            for j, name in enumerate(names):
                value = series.values[name][i]
                if isinstance(value, int | float):
                    point[j] = (point[j] or 0.0) + value
    ordered = sorted(sums)
    if len(ordered) > 1 and told[ordered[-1]] < told[ordered[-2]]:
        ordered.pop()  # not all have spoken yet: their sum would look like a fall; it comes with the next answer
    return Points(step_s, tuple(ordered), {name: tuple(_short(sums[at][j]) for at in ordered) for j, name in enumerate(names)})


def mean_of_last(values: Sequence[float | None], count: int) -> float | None:
    """The mean of those known among the last `count`."""
    known = [v for v in values[-count:] if v is not None]
    return sum(known) / len(known) if known else None


def _short(value: float | None) -> float | None:
    """What a chart can show: five digits are enough, and a third of the bytes."""
    return None if value is None else float(f"{value:.5g}") if abs(value) < 100_000 else round(value)
