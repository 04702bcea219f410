"""PURE: where an axis has its ticks: round numbers, and round moments of a clock in its own zone."""

from __future__ import annotations

import math
from datetime import datetime, timedelta, tzinfo
from typing import Final

_MINUTES: Final = (1, 2, 5, 10, 15, 30, 60, 120, 180, 360, 720)  # between ticks; beyond them: days
_DAYS: Final = (1, 2, 7, 14, 28, 91, 365)
_DAY_S: Final = 86_400.0


def value_ticks(highest: float, most: int = 5) -> tuple[float, ...]:
    """From 0 up to at least `highest`, at most `most` steps of 1, 2, 2.5 or 5 times a power of ten."""
    if highest <= 0:
        return (0.0, 1.0)
    power = 10.0 ** math.floor(math.log10(highest / most))
    step = next(times * power for times in (1.0, 2.0, 2.5, 5.0, 10.0) if times * power * most >= highest * (1 - 1e-9))
    return tuple(i * step for i in range(math.ceil(highest / step - 1e-9) + 1))


def time_ticks(since: float, until: float, zone: tzinfo, most: int) -> tuple[tuple[float, str], ...]:
    """(epoch seconds, words) of round moments in between, at most `most`: "09:00", at a new day "Thu 3 Dec"."""
    span_s = max(until - since, 60.0)
    minutes = next((m for m in _MINUTES if m * 60 * most >= span_s), None)
    if minutes is None:
        days = next((d for d in _DAYS if d * _DAY_S * most >= span_s), _DAYS[-1])
        return tuple((at.timestamp(), f"{at.day} {at:%b}") for at in _midnights(since, until, zone, days)[:most])
    begin = datetime.fromtimestamp(since, zone).replace(hour=0, minute=0, second=0, microsecond=0)
    ticks = []
    for i in range(math.ceil((until - begin.timestamp()) / (minutes * 60)) + 2):
        # on the clock's face: a day on which the clock is changed has an hour more or less, and its ticks stay round
        at = begin + timedelta(minutes=i * minutes)
        if since <= at.timestamp() <= until:
            new_day = at.hour == 0 and at.minute == 0
            ticks.append((at.timestamp(), f"{at:%a} {at.day} {at:%b}" if new_day else f"{at:%H:%M}"))
    return tuple(ticks[:most])


def _midnights(since: float, until: float, zone: tzinfo, days: int) -> list[datetime]:
    first = datetime.fromtimestamp(since, zone).replace(hour=0, minute=0, second=0, microsecond=0) + timedelta(days=1)
    every = (first + timedelta(days=i) for i in range(0, math.ceil((until - since) / _DAY_S) + 1, days))
    return [at for at in every if since <= at.timestamp() <= until]
