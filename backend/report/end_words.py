"""PURE: when something ends, in words that are as exact as what is known: "Done Thursday 09:10–15:40, most likely 12:05"."""

from __future__ import annotations

import math
from dataclasses import dataclass
from datetime import datetime, timedelta, tzinfo
from typing import Final

from backend.forecast.calibrate import Range

MINUTE_S: Final = 60
HOUR_S: Final = 3600
DAY_S: Final = 86_400
LONGEST_S: Final = 1000 * 365 * DAY_S  # calendars end in the year 9999
# (a range wider than this, is told to so many seconds), the widest first
_GRAINS: Final = ((4 * DAY_S, DAY_S), (16 * HOUR_S, HOUR_S), (8 * HOUR_S, 10 * MINUTE_S), (90 * MINUTE_S, 5 * MINUTE_S))
_UNITS: Final = ((2 * DAY_S, DAY_S, "days"), (2 * HOUR_S, HOUR_S, "h"), (2 * MINUTE_S, MINUTE_S, "min"))
_DATED_AFTER_DAYS: Final = 6  # a weekday further away than this could be another week's


@dataclass(frozen=True, slots=True)
class Span:
    """A range of moments, epoch seconds."""

    p10: float
    p50: float
    p90: float


def span_after(at: float, remaining: Range) -> Span:
    """When so many seconds from `at` on are over; what takes longer than LONGEST_S ends then, as far as words go."""
    return Span(*(at + min(seconds, LONGEST_S) for seconds in (remaining.p10, remaining.p50, remaining.p90)))


def done_words(span: Span, now: float | None, zone: tzinfo) -> tuple[str, str]:
    """("Done Thursday 09:10–15:40", ", most likely 12:05"): the answer, and what may stand fainter.

    `now`: None for words that are read later, which name dates and never "today"; likewise below.
    """
    first, last, middle = _rounded(span, zone)
    begin, end, most = (datetime.fromtimestamp(at, zone) for at in (first, last, middle))
    today = _today(now, zone)
    if _grain(span) >= DAY_S:
        if begin.date() == end.date():
            return f"Done {_date(begin, today)}", ""
        return f"Done {_dates(begin, end, today)}", f", most likely {_date(most, today)}"
    if begin.date() == end.date():
        ends = f"{begin:%H:%M}" if first == last else f"{begin:%H:%M}–{end:%H:%M}"
        likely = "" if first == last else f", most likely {most:%H:%M}"
        return f"Done {_day(begin, today)} {ends}", likely
    at = f"{most:%H:%M}" if most.date() == begin.date() else f"{_day(most, today)} {most:%H:%M}"
    return f"Done {_day(begin, today)} {begin:%H:%M} – {_day(end, today)} {end:%H:%M}", f", most likely {at}"


def span_words(span: Span, now: float | None, zone: tzinfo) -> str:
    """The same for a cell of a table: "Thursday 09:10–15:40"."""
    words = done_words(span, now, zone)[0].removeprefix("Done ")
    return words[0].upper() + words[1:]


def moment_words(at: float, now: float | None, zone: tzinfo) -> str:
    """ "Thursday 09:10", in the viewer's zone."""
    here = datetime.fromtimestamp(at, zone)
    return f"{_day(here, _today(now, zone))} {here:%H:%M}"


def likely_words(span: Span, now: float, zone: tzinfo) -> str:
    """The likely end alone, rounded as the range is: "Thursday 12:05"."""
    if _grain(span) >= DAY_S:
        return _date(datetime.fromtimestamp(span.p50, zone), _today(now, zone))
    return moment_words(_rounded(span, zone)[2], now, zone)


def work_words(remaining: Range) -> str:
    """ "12–19 h of work": a range of active seconds."""
    return f"{range_words(remaining)} of work"


def range_words(seconds: Range) -> str:
    """ "12–19 h": how long something takes, both ends in the unit that suits the middle."""
    whole = max(seconds.p50, 1.0)
    unit_s, unit = next(((s, name) for over, s, name in _UNITS if whole >= over), (1, "s"))
    low, high = _short(seconds.p10 / unit_s), _short(seconds.p90 / unit_s)
    return f"{low} {unit}" if low == high else f"{low}–{high} {unit}"


def length_words(seconds: float) -> str:
    """How long something takes, by the unit in which it is thought of: "45 min", "16.7 h", "13.2 days"."""
    if seconds < 0:
        return f"-{length_words(-seconds)}"
    if seconds < 90:
        return f"{seconds:.0f} s"
    if seconds < 10 * MINUTE_S:
        return f"{seconds / MINUTE_S:.1f} min"
    if seconds < 90 * MINUTE_S:
        return f"{seconds / MINUTE_S:.0f} min"
    if seconds < 2 * DAY_S:
        return f"{seconds / HOUR_S:.1f} h"
    return f"{seconds / DAY_S:.1f} days"


def _short(count: float) -> str:
    return f"{count:.0f}" if count >= 10 else f"{count:.1f}".removesuffix(".0")


def _grain(span: Span) -> int:
    width = span.p90 - span.p10
    return next((grain for over, grain in _GRAINS if width > over), MINUTE_S)


def _rounded(span: Span, zone: tzinfo) -> tuple[float, float, float]:
    """The ends outwards, so that the words hold at least as often as the range does; the middle to the nearest."""
    grain = _grain(span)
    if grain >= DAY_S:
        return span.p10, span.p90, span.p50
    offset = datetime.fromtimestamp(span.p50, zone).utcoffset() or timedelta()
    off = offset.total_seconds() % grain  # full hours of the viewer's clock, in Kathmandu too
    first, last = (math.floor((span.p10 + off) / grain) * grain - off, math.ceil((span.p90 + off) / grain) * grain - off)
    return first, last, min(max(round((span.p50 + off) / grain) * grain - off, first), last)


def _today(now: float | None, zone: tzinfo) -> datetime | None:
    return None if now is None else datetime.fromtimestamp(now, zone)


def _day(at: datetime, today: datetime | None) -> str:
    if today is None:
        return f"{at:%A} {_date(at, at)}"
    days = (at.date() - today.date()).days
    if days in (0, 1, -1):
        return {0: "today", 1: "tomorrow", -1: "yesterday"}[days]
    return f"{at:%A}" if 0 < days <= _DATED_AFTER_DAYS else _date(at, today)


def _date(at: datetime, today: datetime | None) -> str:
    year = "" if today is not None and (abs(at - today) < timedelta(days=270) or at.year == today.year) else f" {at.year}"
    return f"{at.day} {at:%B}{year}"


def _dates(begin: datetime, end: datetime, today: datetime | None) -> str:
    if (begin.year, begin.month) == (end.year, end.month):
        return f"{begin.day}–{_date(end, today)}"
    return f"{_date(begin, today)} – {_date(end, today)}"
