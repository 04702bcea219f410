"""Values → Plotly figures that read at a glance. Colours are `chart_theme.py`'s, places of words `chart_labels.py`'s.

A figure carries its title (what it shows) and subtitle (unit and scope). Pages draw it by `pages/charts.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, tzinfo
from itertools import pairwise
from typing import Any, Final

import plotly.graph_objects as go

from backend.report.chart_labels import Mark, label, place
from backend.report.chart_theme import SMALL_PX, Palette, faded, palette, template

__all__ = ["Level", "Line", "Mark", "Panel", "histogram", "label", "palette", "small_multiples", "template", "time_series"]

LANE_PX: Final = 15
TITLE_PX: Final = 52
GAP_STEPS: Final = 2.5  # a line is broken where points are further apart than so many steps
PLOT_WIDTH_PX: Final = 560  # assumed for placing words, since the server does not know: a narrower plot may be zoomed
MARK_NAMES: Final = 6  # more lines than this at once are told apart by a legend


@dataclass(frozen=True, slots=True)
class Line:
    """One line: `values[i]` at `at[i]` (epoch seconds), None where nothing is known. `step_s` is what a point covers."""

    name: str
    at: Sequence[float]
    values: Sequence[float | None]
    step_s: float = 1.0


@dataclass(frozen=True, slots=True)
class Level:
    """A value that holds over the whole chart: what was expected, a limit."""

    value: float
    words: str


@dataclass(frozen=True, slots=True)
class Panel:
    """One row of small multiples."""

    name: str
    line: Line
    now: str = ""  # the present value in words, at the panel's right


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
        _add_line(figure, line, p.series[i % len(p.series)], unit, zone, **fill)
    highest = top if top is not None else _highest([*(line.values for line in lines), [level.value] if level else []])
    placed = place(marks, since, until, width_px=width_px)
    lanes = max((mark.lane + 1 for mark in placed if mark.lane is not None), default=0)
    head_px = TITLE_PX + 6 + lanes * LANE_PX
    plot_px = max(60, height_px - head_px - 30)
    for mark in placed:
        lane = mark.lane if mark.lane is not None else -1
        _add_mark(figure, _local(mark.mark.at, zone), (lane + 0.9) * LANE_PX / plot_px, p.of_severity(mark.mark.severity))
        if mark.lane is not None:
            words = {"text": label(mark.mark.words), "xanchor": "right" if mark.leftwards else "left"}
            _add_words(figure, _local(mark.mark.at, zone), mark.lane, plot_px, **words)
    if level is not None:
        figure.add_hline(y=level.value, line={"color": p.dim, "width": 1, "dash": "dot"})
        figure.add_annotation(xref="paper", x=1, y=level.value, text=label(level.words), xanchor="right", yanchor="bottom")
    right_px = _name_lines(figure, lines, highest, plot_px, p)
    figure.update_layout(
        title={"text": label(title, 120), "subtitle": {"text": label(subtitle, 160)}},
        height=height_px,
        margin={"l": 8, "r": right_px, "t": head_px, "b": 8},
    )
    figure.update_xaxes(range=[_local(since, zone), _local(until, zone)], type="date", nticks=7)
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


def small_multiples(
    panels: Sequence[Panel],
    *,
    title: str,
    subtitle: str,
    unit: str,
    since: float,
    until: float,
    zone: tzinfo = UTC,
    dark: bool = False,
    top: float | None = None,
    level: float | None = None,
    panel_px: int = 58,
) -> go.Figure:
    """A row a panel, all on one time axis and one scale from zero to `top`, each with its name and its present value.

    `level` is a limit, drawn dotted in every panel. Panels without a known value stay empty and say so.
    """
    p = palette(dark)
    figure = go.Figure(layout={"template": template(dark)})
    highest = top if top is not None else _highest([*(panel.line.values for panel in panels), [level or 0.0]])
    count = len(panels)
    between = 0.28 / count if count > 1 else 0.0  # room for the panel's name
    each = (1 - between * count) / count if count else 1.0
    for i, panel in enumerate(panels):
        bottom = 1 - (i + 1) * (each + between)
        axis = "y" if i == 0 else f"y{i + 1}"
        fill = {"fill": "tozeroy", "fillcolor": faded(p.accent, 0.10), "yaxis": axis}
        _add_line(figure, panel.line, p.accent, unit, zone, **fill)
        name = "yaxis" if i == 0 else f"yaxis{i + 1}"
        scale = {"domain": [max(0.0, bottom), bottom + each], "range": [0, highest * 1.04], "tickvals": [0, highest]}
        figure.update_layout(
            {name: {**scale, "tickformat": ",~s", "tickfont": {"size": SMALL_PX, "color": p.dim}, "anchor": "x"}}
        )
        edge = {
            "xref": "paper",
            "yref": "paper",
            "y": bottom + each,
            "yanchor": "bottom",
            "font": {"size": SMALL_PX, "color": p.ink},
        }
        figure.add_annotation(x=0, xanchor="left", text=label(panel.name, 24), **edge)
        now = panel.now if any(v is not None for v in panel.line.values) else "–"
        figure.add_annotation(x=1, xanchor="right", text=label(now, 24), **edge)
        if level is not None:
            dotted = {"color": p.dim, "width": 1, "dash": "dot"}
            figure.add_shape(type="line", xref="paper", x0=0, x1=1, yref=axis, y0=level, y1=level, line=dotted)
    figure.update_layout(
        title={"text": label(title, 120), "subtitle": {"text": label(subtitle, 160)}},
        height=TITLE_PX + 34 + panel_px * count,
        margin={"l": 4, "r": 6, "t": TITLE_PX, "b": 8},
        hovermode="x",
    )
    span = {"range": [_local(since, zone), _local(until, zone)], "type": "date", "nticks": 4}
    figure.update_xaxes(**span, anchor="free", position=0, tickfont={"size": SMALL_PX, "color": p.dim})
    return figure


def broken_at_gaps(line: Line) -> tuple[list[float], list[float | None]]:
    """The points with a None between those that are further apart than points of this step should be."""
    at: list[float] = []
    values: list[float | None] = []
    for moment, value in zip(line.at, line.values, strict=True):
        if at and moment - at[-1] > GAP_STEPS * line.step_s:
            at.append(at[-1] + line.step_s)
            values.append(None)
        at.append(moment)
        values.append(value)
    return at, values


def _add_line(figure: go.Figure, line: Line, colour: str, unit: str, zone: tzinfo, **more: Any) -> None:
    at, values = broken_at_gaps(line)
    utc = [datetime.fromtimestamp(moment, UTC).strftime("%H:%M:%S UTC") for moment in at]
    value_format = ",.0f" if _highest([values]) >= 100 else ",.3~r"
    figure.add_scatter(
        x=[_local(moment, zone) for moment in at],
        y=values,
        customdata=utc,
        name=label(line.name, 24),
        mode="lines",
        line={"color": colour, "width": 1.5},
        hovertemplate=f"{label(line.name, 24)}: <b>%{{y:{value_format}}}</b> {label(unit)} · %{{customdata}}<extra></extra>",
        **more,
    )


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


def _name_lines(figure: go.Figure, lines: Sequence[Line], highest: float, plot_px: float, p: Palette) -> int:
    """Writes each line's name at its end, moved apart where they would lie on each other; returns the margin they need."""
    if len(lines) < 2:
        return 12
    if len(lines) > MARK_NAMES:
        figure.update_layout(showlegend=True)
        return 12
    ends = []
    for i, line in enumerate(lines):
        last = next((v for v in reversed(line.values) if v is not None), None)
        if last is not None:
            ends.append((min(1.0, last / (highest * 1.04)), i, line.name))
    lowest, step = 0.0, 14 / plot_px
    for height, i, name in sorted(ends):
        y = max(height, lowest)
        lowest = y + step
        colour = p.series[i % len(p.series)]
        ours = {"x": 1, "xref": "paper", "y": y, "yref": "paper", "xanchor": "left", "yanchor": "middle", "xshift": 4}
        figure.add_annotation(**ours, text=label(name, 24), font={"color": colour, "size": SMALL_PX})
    return 14 + round(max((min(len(name), 24) for _, _, name in ends), default=0) * 6.4)


def _highest(many: Sequence[Sequence[float | None]]) -> float:
    return max((v for values in many for v in values if v is not None), default=0.0) or 1.0


def _local(at: float, zone: tzinfo) -> str:
    """Wall-clock time of the viewer: Plotly draws dates as they are written and knows no zones."""
    return datetime.fromtimestamp(at, zone).strftime("%Y-%m-%d %H:%M:%S.%f")[:-3]
