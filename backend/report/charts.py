"""Values → Plotly figures that read at a glance. Colours are `chart_theme.py`'s, places of words `chart_labels.py`'s.

A figure carries its title (what it shows) and subtitle (unit and scope). Pages draw it by `pages/charts.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, tzinfo
from itertools import pairwise
from typing import Any, Final

import plotly.graph_objects as go

from backend.report.chart_labels import Mark, label, place
from backend.report.chart_lines import Line, add_line, highest_of, local_time
from backend.report.chart_panels import Panel, small_multiples
from backend.report.chart_theme import SMALL_PX, Palette, faded, palette, template

__all__ = ["Level", "Line", "Mark", "Panel", "histogram", "label", "palette", "small_multiples", "template", "time_series"]

LANE_PX: Final = 15
TITLE_PX: Final = 52
PLOT_WIDTH_PX: Final = 560  # assumed for placing words, since the server does not know: a narrower plot may be zoomed
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
    figure = go.Figure(layout={"template": template(dark)})
    for i, line in enumerate(lines):
        fill = {"fill": "tozeroy", "fillcolor": faded(p.accent, 0.10)} if len(lines) == 1 else {}
        add_line(figure, line, p.series[i % len(p.series)], unit, zone, **fill)
    highest = top if top is not None else highest_of([*(line.values for line in lines), [level.value] if level else []])
    placed = place(marks, since, until, width_px=width_px)
    lanes = max((mark.lane + 1 for mark in placed if mark.lane is not None), default=0)
    head_px = TITLE_PX + 6 + lanes * LANE_PX
    plot_px = max(60, height_px - head_px - 30)
    for mark in placed:
        lane = mark.lane if mark.lane is not None else -1
        _add_mark(figure, local_time(mark.mark.at, zone), (lane + 0.9) * LANE_PX / plot_px, p.of_severity(mark.mark.severity))
        if mark.lane is not None:
            words = {"text": label(mark.mark.words), "xanchor": "right" if mark.leftwards else "left"}
            _add_words(figure, local_time(mark.mark.at, zone), mark.lane, plot_px, **words)
    if level is not None:
        figure.add_hline(y=level.value, line={"color": p.dim, "width": 1, "dash": "dot"})
    right_px = _name_lines(figure, lines, level, highest=highest, plot_px=plot_px, p=p)
    figure.update_layout(
        title={"text": label(title, 120), "subtitle": {"text": label(subtitle, 160)}},
        height=height_px,
        margin={"l": 8, "r": right_px, "t": head_px, "b": 8},
    )
    figure.update_xaxes(range=[local_time(since, zone), local_time(until, zone)], type="date", nticks=6)
    figure.update_yaxes(range=[0, highest * 1.04], ticksuffix=f" {unit}" if len(unit) <= 3 else "", nticks=5, tickformat=",~r")
    if len(unit) > 3:
        figure.update_yaxes(tickformat=",~s" if highest >= 10_000 else ",~r")
    return figure


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
    figure = go.Figure(layout={"template": template(dark)})
    hover = (
        "%{customdata[0]:,.0f} – %{customdata[1]:,.0f} " + label(unit) + ": <b>%{y:,}</b> " + label(counted) + "<extra></extra>"
    )
    figure.add_bar(
        x=[(a + b) / 2 for a, b in pairwise(edges)],
        width=[b - a for a, b in pairwise(edges)],
        y=list(counts),
        customdata=list(pairwise(edges)),
        hovertemplate=hover,
        marker={"color": faded(p.accent, 0.55), "line": {"width": 1, "color": p.page}},
    )
    placed = place(marks, edges[0], edges[-1], width_px=width_px)
    lanes = max((mark.lane + 1 for mark in placed if mark.lane is not None), default=0)
    head_px = TITLE_PX + 6 + lanes * LANE_PX
    plot_px = max(60, height_px - head_px - 48)
    for mark in placed:
        _add_mark(figure, mark.mark.at, ((mark.lane or 0) + 0.9) * LANE_PX / plot_px, p.ink)
        if mark.lane is not None:
            words = {"text": label(mark.mark.words), "xanchor": "right" if mark.leftwards else "left"}
            _add_words(figure, mark.mark.at, mark.lane, plot_px, **words)
    figure.update_layout(
        title={"text": label(title, 120), "subtitle": {"text": label(subtitle, 160)}},
        height=height_px,
        bargap=0,
        hovermode="closest",
        margin={"l": 8, "r": 12, "t": head_px, "b": 8},
    )
    figure.update_xaxes(title={"text": label(unit)}, tickformat=",~s", range=[edges[0], edges[-1]])
    figure.update_yaxes(nticks=5, tickformat=",~s", rangemode="tozero")
    return figure


def _add_mark(figure: go.Figure, x: Any, above: float, colour: str) -> None:
    figure.add_shape(
        type="line",
        xref="x",
        yref="paper",
        x0=x,
        x1=x,
        y0=0,
        y1=1 + max(0.0, above),
        line={"color": colour, "width": 1, "dash": "dot"},
    )


def _add_words(figure: go.Figure, x: Any, lane: int, plot_px: float, **words: Any) -> None:
    figure.add_annotation(
        x=x,
        xref="x",
        yref="paper",
        y=1 + lane * LANE_PX / plot_px,
        yanchor="bottom",
        xshift=-3 if words["xanchor"] == "right" else 3,
        **words,
    )


def _name_lines(
    figure: go.Figure, lines: Sequence[Line], level: Level | None, *, highest: float, plot_px: float, p: Palette
) -> int:
    """Writes each line's name at its end, moved apart where they would lie on each other; returns the margin they need."""
    ends = [(level.value, level.words, p.dim)] if level is not None else []
    if len(lines) > MARK_NAMES:
        figure.update_layout(showlegend=True)
    elif len(lines) > 1:
        for i, line in enumerate(lines):
            last = next((v for v in reversed(line.values) if v is not None), None)
            if last is not None:
                ends.append((last, line.name, p.series[i % len(p.series)]))
    if not ends:
        return 12
    lowest = 0.0
    for value, name, colour in sorted(ends):
        y = max(min(1.0, value / (highest * 1.04)), lowest)
        lowest = y + 14 / plot_px
        ours = {"x": 1, "xref": "paper", "y": y, "yref": "paper", "xanchor": "left", "yanchor": "middle", "xshift": 4}
        figure.add_annotation(**ours, text=label(name, 24), font={"color": colour, "size": SMALL_PX})
    return 14 + round(max(min(len(name), 24) for _, name, _ in ends) * 6.4)
