"""PURE: the fan chart: finished tokens so far as a line, and from now on as a band that holds 8 of 10 outcomes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import tzinfo
from typing import Final

from backend.report.end_words import Span
from backend.report.formatting import compact
from backend.report.share.drawing import Anchor, Area, Ink, Part, Picture, Point, Stroke, Words
from backend.report.share.ticks import time_ticks, value_ticks

_CHARACTER: Final = 0.56  # of a text's size, the width of one: enough to keep words apart
_TICK_ROOM: Final = 7.5  # characters that a tick of the time axis needs


@dataclass(frozen=True, slots=True)
class Band:
    """Quantiles of the tokens finished at `at[i]`, epoch seconds."""

    at: tuple[float, ...]
    p10: tuple[float, ...]
    p50: tuple[float, ...]
    p90: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class Fan:
    """What the chart shows: `tokens[i]` at `at[i]` (epoch seconds), and what is to come where something can be said of it."""

    at: tuple[float, ...]
    tokens: tuple[float, ...]
    band: Band | None
    end: Span | None


@dataclass(frozen=True, slots=True)
class _Plot:
    """Where values stand, and how large words are."""

    since: float
    until: float
    highest: float
    left: float
    right: float
    top: float
    bottom: float
    text_px: float

    def x(self, at: float) -> float:
        return self.left + (self.right - self.left) * (at - self.since) / (self.until - self.since)

    def place(self, at: float, tokens: float) -> Point:
        return self.x(at), self.bottom - (self.bottom - self.top) * tokens / self.highest


def fan_picture(fan: Fan, zone: tzinfo, *, width_px: float, height_px: float, text_px: float) -> Picture:
    """`text_px` is the size of its words. Needs one finished point at least."""
    band = fan.band
    ticks = value_ticks(max((*fan.tokens, *(band.p90 if band else ()))))
    plot = _Plot(
        since=fan.at[0],
        until=max(fan.at[-1], fan.at[0] + 60.0, band.at[-1] if band else 0.0),
        highest=ticks[-1],
        left=text_px * (_CHARACTER * max(len(_short(tick)) for tick in ticks) + 0.8),
        right=width_px - text_px * 0.4,
        top=text_px * 1.9,
        bottom=height_px - text_px * 2.1,
        text_px=text_px,
    )
    parts = [*_values(plot, ticks), *_times(plot, zone, width_px)]
    if band is not None:
        parts += _to_come(plot, band, fan.end)
    parts.append(Stroke(tuple(map(plot.place, fan.at, fan.tokens)), Ink.ACCENT, text_px * 0.17))
    return Picture(width_px, height_px, _told(fan), tuple(parts))


def _values(plot: _Plot, ticks: Sequence[float]) -> list[Part]:
    parts: list[Part] = []
    for tick in ticks:
        _, y = plot.place(plot.since, tick)
        at = (plot.left - plot.text_px * 0.5, y + plot.text_px * 0.35)
        parts.append(Stroke(((plot.left, y), (plot.right, y)), Ink.LINE if tick == 0 else Ink.GRID, 1))
        parts.append(Words(at, _short(tick), Ink.DIM, plot.text_px, Anchor.END))
    return parts


def _times(plot: _Plot, zone: tzinfo, width_px: float) -> list[Part]:
    parts: list[Part] = []
    most = max(2, int((plot.right - plot.left) / (plot.text_px * _TICK_ROOM)))
    for at, words in time_ticks(plot.since, plot.until, zone, most):
        x, room = plot.x(at), plot.text_px * _CHARACTER * len(words) / 2
        parts.append(Stroke(((x, plot.bottom), (x, plot.bottom + plot.text_px * 0.35)), Ink.LINE, 1))
        below = (min(max(x, room), width_px - room), plot.bottom + plot.text_px * 1.5)
        parts.append(Words(below, words, Ink.DIM, plot.text_px, Anchor.MIDDLE))
    return parts


def _to_come(plot: _Plot, band: Band, end: Span | None) -> list[Part]:
    edge = [*map(plot.place, band.at, band.p90), *reversed([*map(plot.place, band.at, band.p10)])]
    now, text_px = plot.x(band.at[0]), plot.text_px
    parts: list[Part] = [
        Area(tuple(edge), Ink.FILL),
        Stroke(tuple(map(plot.place, band.at, band.p50)), Ink.ACCENT, text_px * 0.12, dotted=True),
        Stroke(((now, plot.top - text_px * 0.3), (now, plot.bottom)), Ink.DIM, 1, dotted=True),
        Words((now, plot.top - text_px * 0.6), "as of", Ink.DIM, text_px, _side(now, plot)),
    ]
    _, high = plot.place(plot.until, band.p90[-1])
    likely_words = f"likely {compact(band.p50[-1])}"
    parts.append(Words((plot.right, high - text_px * 0.5), likely_words, Ink.ACCENT, text_px, Anchor.END))
    if end is not None:  # the range of the end, on the axis
        first, likely, last = (plot.x(min(at, plot.until)) for at in (end.p10, end.p50, end.p90))
        parts.append(Stroke(((first, plot.bottom), (last, plot.bottom)), Ink.ACCENT, text_px * 0.35))
        upright = ((likely, plot.bottom - text_px * 0.45), (likely, plot.bottom + text_px * 0.2))
        parts.append(Stroke(upright, Ink.ACCENT, text_px * 0.17))
    return parts


def _short(tick: float) -> str:
    """5000000 → "5M": a round number needs no digits behind its point."""
    words = compact(tick)
    return f"{words[:-1].rstrip('0').rstrip('.')}{words[-1]}" if "." in words else words


def _side(x: float, plot: _Plot) -> Anchor:
    return Anchor.START if x < plot.right * 0.85 else Anchor.END


def _told(fan: Fan) -> str:
    last: Sequence[float] = fan.tokens[-1:]
    words = f"Tokens finished over time: {compact(last[0] if last else None)} so far"
    return words if fan.band is None else f"{words}, {compact(fan.band.p50[-1])} likely in the end"
