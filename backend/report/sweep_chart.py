"""Values → the chart of a sweep: tokens a second of the server above, of one request below, against requests in flight."""

from __future__ import annotations

import math
from typing import Any, Final

import plotly.graph_objects as go

from backend.report.chart_labels import CHARACTER_PX, Mark, label, place
from backend.report.chart_theme import SMALL_PX, Palette, palette, template
from backend.sweeps import SweepLevel

HEIGHT_PX: Final = 380
HEAD_PX: Final = 58
LANE_PX: Final = 15
WIDTH_PX: Final = 560
UPPER: Final = (0.44, 1.0)  # of the plot's height
LOWER: Final = (0.0, 0.32)


def sweep_figure(
    levels: tuple[SweepLevel, ...], *, subtitle: str, knee: int | None, recommended: int | None, dark: bool = False
) -> go.Figure:
    """Both speeds on a scale of ratios, with 95 % intervals; knee and recommended concurrency as vertical lines with words."""
    p = palette(dark)
    x = [math.log2(level.concurrency) for level in levels]
    since, until = _span(levels, recommended)
    marks = _marks(knee, recommended)
    placed = place(marks, since, until, width_px=WIDTH_PX)
    lanes = max((mark.lane + 1 for mark in placed if mark.lane is not None), default=0)
    plot_px = HEIGHT_PX - HEAD_PX - lanes * LANE_PX - 44
    lines, words = [], []
    for mark in placed:
        colour = p.accent if mark.mark.severity == "info" else p.dim
        above = 0.0 if mark.lane is None else (mark.lane + 0.9) * LANE_PX / plot_px
        across = {"xref": "x", "yref": "paper", "x0": mark.mark.at, "x1": mark.mark.at, "y0": 0, "y1": 1 + above}
        lines.append({"type": "line", **across, "line": {"color": colour, "width": 1, "dash": "dot"}})
        if mark.lane is not None:
            side = {"xanchor": "right", "xshift": -3} if mark.leftwards else {"xanchor": "left", "xshift": 3}
            at = {"x": mark.mark.at, "xref": "x", "y": 1 + mark.lane * LANE_PX / plot_px, "yref": "paper", "yanchor": "bottom"}
            words.append({**at, **side, "text": label(mark.mark.words), "font": {"size": SMALL_PX, "color": p.ink}})
    edge = {"x": 0, "xref": "paper", "xanchor": "left", "yref": "paper", "yanchor": "bottom", "yshift": 2}
    small = {"size": SMALL_PX, "color": p.ink}
    words.append({**edge, "y": LOWER[1], "text": "One request, tokens/s", "font": small})
    layout = {
        "template": template(dark),
        "title": {
            "text": "Speed by requests in flight",
            "subtitle": {"text": label(f"All requests, tokens/s; {subtitle}", 160)},
        },
        "height": HEIGHT_PX,
        "margin": {"l": 8, "r": 12, "t": HEAD_PX + lanes * LANE_PX, "b": 8},
        "hovermode": "closest",
        "xaxis": {
            "range": [since, until],
            "tickvals": _ticks(x),
            "ticktext": [f"{round(2**each):,}" for each in _ticks(x)],
            "title": {"text": "requests in flight"},
            "anchor": "y2",
        },
        "yaxis": {"domain": list(UPPER), "rangemode": "tozero", "nticks": 5, "tickformat": ",~r"},
        "yaxis2": {"domain": list(LOWER), "rangemode": "tozero", "nticks": 3, "tickformat": ",~r", "anchor": "x"},
        "annotations": words,
        "shapes": lines,
    }
    return go.Figure(data=[_whole(x, levels, p), _each(x, levels, p)], layout=layout)


def _whole(x: list[float], levels: tuple[SweepLevel, ...], p: Palette) -> dict[str, Any]:
    widths = [level.half_width_tokens_per_s or 0.0 for level in levels]
    bars = {"type": "data", "array": widths, "color": p.accent, "thickness": 1, "width": 4, "visible": any(widths)}
    hover = "%{customdata:,} in flight: <b>%{y:,.1f}</b> tokens/s<extra></extra>"
    return {**_line(x, levels, p), "y": [level.tokens_per_s for level in levels], "error_y": bars, "hovertemplate": hover}


def _each(x: list[float], levels: tuple[SweepLevel, ...], p: Palette) -> dict[str, Any]:
    hover = "%{customdata:,} in flight: <b>%{y:,.1f}</b> tokens/s a request<extra></extra>"
    speeds = [level.tokens_per_s_a_request for level in levels]
    return {**_line(x, levels, p), "y": speeds, "yaxis": "y2", "hovertemplate": hover}


def _line(x: list[float], levels: tuple[SweepLevel, ...], p: Palette) -> dict[str, Any]:
    return {
        "type": "scatter",
        "mode": "lines+markers",
        "x": x,
        "customdata": [level.concurrency for level in levels],
        "line": {"color": p.accent, "width": 1.5},
        "marker": {"color": p.accent, "size": 5},
    }


def _span(levels: tuple[SweepLevel, ...], recommended: int | None) -> tuple[float, float]:
    counts = [level.concurrency for level in levels] + ([recommended] if recommended else [])
    return math.log2(min(counts)) - 0.35, math.log2(max(counts)) + 0.35


def _marks(knee: int | None, recommended: int | None) -> list[Mark]:
    if knee is not None and knee == recommended:
        return [Mark(math.log2(knee), f"{knee}: knee, recommended")]
    marks = [] if knee is None else [Mark(math.log2(knee), f"{knee}: knee", "note")]
    return marks if recommended is None else [*marks, Mark(math.log2(recommended), f"{recommended}: recommended")]


def _ticks(x: list[float]) -> list[float]:
    """Of levels that lie so close that their numbers would touch, the higher one goes without."""
    room = 4 * CHARACTER_PX / WIDTH_PX * (x[-1] - x[0] + 0.7) if x else 0.0
    kept: list[float] = []
    for each in x:
        if not kept or each - kept[-1] >= room:
            kept.append(each)
    return kept
