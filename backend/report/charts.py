"""Values → Plotly figures that read at a glance. Colours are `chart_theme.py`'s, places of words `chart_labels.py`'s.

A figure carries its title (what it shows) and subtitle (unit and scope). Pages draw it by `pages/charts.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, tzinfo
from itertools import pairwise
from typing import Any, Final

import plotly.graph_objects as go

from backend.report.chart_labels import Mark, PlacedMark, label, place, too_narrow_for
from backend.report.chart_lines import Line, area_traces, highest_of, line_trace, local_time
from backend.report.chart_panels import Panel, small_multiples
from backend.report.chart_theme import SMALL_PX, Palette, faded, palette, template

__all__ = ["Level", "Line", "Mark", "Panel", "histogram", "label", "palette", "small_multiples", "template", "time_series"]

LANE_PX: Final = 15
TITLE_PX: Final = 52
PLOT_WIDTH_PX: Final = 560  # assumed for placing words, since the server does not know: a narrower plot may be zoomed
NARROW_PLOTS_PX: Final = (480, 400, 340, 280, 220)
HIDDEN_WHEN_NARROW: Final = "hidden_when_narrow"  # in a figure's `layout.meta`
TICKS: Final = 6
WIDE_TICKS: Final = 4  # where moments have seconds: more would touch in three charts abreast, and on a telephone
MARK_NAMES: Final = 6  # more lines than this at once are told apart by a legend


@dataclass(frozen=True, slots=True)
class Level:
    """A value that holds over the whole chart: what was expected, a limit."""

    value: float
    words: str


def time_series(
    lines: Sequence[Line],
    *,
    title: str,
    subtitle: str,
    unit: str,
    since: float,
    until: float,
    zone: tzinfo = UTC,
    dark: bool = False,
    marks: Sequence[Mark] = (),
    level: Level | None = None,
    top: float | None = None,
    height_px: int = 260,
    width_px: float = PLOT_WIDTH_PX,
) -> go.Figure:
    """Lines over time from zero to `top` (None: as high as the values), events as vertical lines with their words above.

    `unit` stands in the hover text and on the uppermost tick. A single line is filled. `zone` is the viewer's.
    """
    p = palette(dark)
    if len(lines) == 1:
        traces = area_traces(lines[0], p.series[0], faded(p.accent, 0.10), unit, zone)
    else:
        traces = [line_trace(line, p.series[i % len(p.series)], unit, zone) for i, line in enumerate(lines)]
    highest = top if top is not None else highest_of([*(line.values for line in lines), [level.value] if level else []])
    placed = place(marks, since, until, width_px=width_px)
    lanes = max((mark.lane + 1 for mark in placed if mark.lane is not None), default=0)
    head_px = TITLE_PX + 6 + lanes * LANE_PX
    plot_px = max(60, height_px - head_px - 30)
    shapes = mark_lines(placed, lambda at: local_time(at, zone), plot_px, lambda mark: p.of_severity(mark.severity))
    words = [mark_words(m, local_time(m.mark.at, zone), plot_px) for m in placed if m.lane is not None]
    if level is not None:
        across = {"type": "line", "xref": "paper", "x0": 0, "x1": 1, "yref": "y", "y0": level.value, "y1": level.value}
        shapes.append({**across, "line": {"color": p.dim, "width": 1, "dash": "dot"}})
    names = _line_names(lines, level, highest=highest, plot_px=plot_px, p=p)
    short = len(unit) <= 3
    layout = {
        "template": template(dark),
        "title": {"text": label(title, 120), "subtitle": {"text": label(subtitle, 160)}},
        "height": height_px,
        "margin": {"l": 8, "r": _margin_px(names), "t": head_px, "b": 8},
        "xaxis": {
            "range": [local_time(since, zone), local_time(until, zone)],
            "type": "date",
            "nticks": WIDE_TICKS if until - since < TICKS * 60 else TICKS,
        },
        "yaxis": {
            "range": [0, highest * 1.04],
            "ticksuffix": f" {unit}" if short else "",
            "nticks": 5,
            "tickformat": ",~s" if highest >= 10_000 and not short else ",~r",
        },
        "showlegend": len(lines) > MARK_NAMES,
        "annotations": [*words, *names],
        "meta": narrow_meta(placed, since, until),
        "shapes": shapes,
    }
    return go.Figure(data=traces, layout=layout)


def histogram(
    edges: Sequence[float],
    counts: Sequence[float],
    *,
    title: str,
    subtitle: str,
    unit: str,
    counted: str = "samples",
    dark: bool = False,
    marks: Sequence[Mark] = (),
    height_px: int = 240,
    width_px: float = PLOT_WIDTH_PX,
) -> go.Figure:
    """Bars between `edges` (one more than `counts`), with places such as a median marked by words. `Mark.at` is an x value."""
    if len(edges) != len(counts) + 1:
        raise ValueError(f"{len(counts)} counts need {len(counts) + 1} edges, found {len(edges)}")
    p = palette(dark)
    hover = (
        "%{customdata[0]:,.0f} – %{customdata[1]:,.0f} " + label(unit) + ": <b>%{y:,}</b> " + label(counted) + "<extra></extra>"
    )
    bars = {
        "type": "bar",
        "x": [(a + b) / 2 for a, b in pairwise(edges)],
        "width": [b - a for a, b in pairwise(edges)],
        "y": list(counts),
        "customdata": list(pairwise(edges)),
        "hovertemplate": hover,
        "marker": {"color": faded(p.accent, 0.55), "line": {"width": 1, "color": p.page}},
    }
    placed = place(marks, edges[0], edges[-1], width_px=width_px)
    lanes = max((mark.lane + 1 for mark in placed if mark.lane is not None), default=0)
    head_px = TITLE_PX + 6 + lanes * LANE_PX
    plot_px = max(60, height_px - head_px - 48)
    layout = {
        "template": template(dark),
        "title": {"text": label(title, 120), "subtitle": {"text": label(subtitle, 160)}},
        "height": height_px,
        "bargap": 0,
        "hovermode": "closest",
        "margin": {"l": 8, "r": 12, "t": head_px, "b": 8},
        "xaxis": {"title": {"text": label(unit)}, "tickformat": ",~s", "range": [edges[0], edges[-1]]},
        "yaxis": {"nticks": 5, "tickformat": ",~s", "rangemode": "tozero"},
        "annotations": [mark_words(m, m.mark.at, plot_px) for m in placed if m.lane is not None],
        "meta": narrow_meta(placed, edges[0], edges[-1]),
        "shapes": mark_lines(placed, lambda at: at, plot_px, lambda _: p.ink),
    }
    return go.Figure(data=[bars], layout=layout)


def mark_lines(
    placed: Sequence[PlacedMark], x_of: Callable[[float], Any], plot_px: float, colour_of: Callable[[Mark], str]
) -> list[dict[str, Any]]:
    """The lines of marks as shapes of Plotly's: first what reaches above the plot to words, one for each that has some; then
    what is in the plot, one for each mark. The former go with their words where these are left out."""
    above = [(m, 1.0, 1 + (m.lane + 0.9) * LANE_PX / plot_px) for m in placed if m.lane is not None]
    within = [(m, 0.0, 1.0) for m in placed]
    return [
        {
            "type": "line",
            "xref": "x",
            "yref": "paper",
            "x0": x_of(m.mark.at),
            "x1": x_of(m.mark.at),
            "y0": low,
            "y1": high,
            "line": {"color": colour_of(m.mark), "width": 1, "dash": "dot"},
        }
        for m, low, high in (*above, *within)
    ]


def mark_words(mark: PlacedMark, x: Any, plot_px: float) -> dict[str, Any]:
    """Its words above the plot; an annotation of Plotly's."""
    side = {"xanchor": "right", "xshift": -3} if mark.leftwards else {"xanchor": "left", "xshift": 3}
    y = 1 + (mark.lane or 0) * LANE_PX / plot_px
    return {"x": x, "xref": "x", "yref": "paper", "y": y, "yanchor": "bottom", "text": label(mark.mark.words), **side}


def narrow_meta(placed: Sequence[PlacedMark], since: float, until: float) -> dict[str, dict[str, list[int]]]:
    """For `pages/charts.py`: width of a plot, px → which annotations and shapes it goes without; those of marks come first."""
    return {HIDDEN_WHEN_NARROW: {str(width): too_narrow_for(placed, since, until, width_px=width) for width in NARROW_PLOTS_PX}}


def _line_names(
    lines: Sequence[Line], level: Level | None, *, highest: float, plot_px: float, p: Palette
) -> list[dict[str, Any]]:
    """Each line's name at its end and the level's words, moved apart where they would lie on each other."""
    ends = [(level.value, level.words, p.dim)] if level is not None else []
    if 1 < len(lines) <= MARK_NAMES:
        for i, line in enumerate(lines):
            last = next((v for v in reversed(line.values) if v is not None), None)
            if last is not None:
                ends.append((last, line.name, p.series[i % len(p.series)]))
    names: list[dict[str, Any]] = []
    lowest = 0.0
    for value, name, colour in sorted(ends):
        y = max(min(1.0, value / (highest * 1.04)), lowest)
        lowest = y + 14 / plot_px
        ours = {"x": 1, "xref": "paper", "y": y, "yref": "paper", "xanchor": "left", "yanchor": "middle", "xshift": 4}
        names.append({**ours, "text": label(name, 24), "font": {"color": colour, "size": SMALL_PX}})
    return names


def _margin_px(names: Sequence[Mapping[str, Any]]) -> int:
    """What the names at the right need."""
    return 14 + round(max(len(name["text"]) for name in names) * 6.4) if names else 12
