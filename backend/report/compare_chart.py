"""Time against cost of every way, with the Pareto front: what lies above and to the right of it is beaten in both."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any, Final

import plotly.graph_objects as go

from backend.costs.comparison import Estimate
from backend.forecast.calibrate import Range
from backend.report.chart_labels import label
from backend.report.chart_theme import SMALL_PX, TEXT_PX, Palette, palette, template
from backend.report.charts import TITLE_PX
from backend.report.compare import CompareView
from backend.report.compare_words import BOX
from backend.report.end_words import range_words
from backend.report.money import usd_range

HEIGHT_PX: Final = 380
MINUTE_S, HOUR_S, DAY_S = 60, 3600, 86_400
# Where a logarithmic axis of time has its marks: on a narrow range all that lie in it, on a wide one the coarse ones.
FINE: Final = {
    **{n: f"{n} s" for n in (1, 2, 5, 10, 20, 30)},
    **{n * MINUTE_S: f"{n} min" for n in (1, 2, 5, 10, 20, 30)},
    **{n * HOUR_S: f"{n} h" for n in (1, 2, 4, 8, 16)},
    **{n * DAY_S: f"{n} d" for n in (1, 2, 4, 7, 14, 30, 90, 365)},
}
COARSE: Final = (1, 10, MINUTE_S, 10 * MINUTE_S, HOUR_S, 8 * HOUR_S, 2 * DAY_S, 14 * DAY_S, 90 * DAY_S, 365 * DAY_S)
MOST_TICKS: Final = 6


def compare_chart(view: CompareView, *, dark: bool = False) -> go.Figure | None:
    """None where no way has both a time and a cost."""
    found = view.comparison
    if found is None:
        return None
    p = palette(dark)
    ways = [(BOX, "", found.local)]
    for option, way in zip(view.options, found.ways, strict=True):
        ways.append((option.api.name, option.api.name, replace(way.whole, usd=way.total_usd)))
    points = [(name, key, e, e.seconds, e.usd) for name, key, e in ways]
    drawn = [(name, key, e) for name, key, e, seconds, usd in points if seconds is not None and usd is not None]
    if not any(key for _, key, _ in drawn):
        return None
    traces = [_point(name, e, _colour(view, key, p), key in view.front or _named(view, key), p) for name, key, e in drawn]
    front = sorted(_middle(e) for _, key, e in drawn if key in view.front)
    dotted = {"color": p.dim, "width": 1, "dash": "dot"}
    line = {"type": "scatter", "mode": "lines", "x": [x for x, _ in front], "y": [y for _, y in front], "line": dotted}
    shapes, words = _box_without_price(found.local, p)
    seconds = [s for _, _, e in drawn if e.seconds for s in (e.seconds.p10, e.seconds.p90)]
    layout = {
        "template": template(dark),
        "title": {
            "text": "Time and cost of each way",
            "subtitle": {
                "text": "Bars: 8 of 10 outcomes. Dotted: the ways that no other one beats in both; time is logarithmic"
            },
        },
        "height": HEIGHT_PX,
        "margin": {"l": 8, "r": 12, "t": TITLE_PX + 6, "b": 8},
        "hovermode": "closest",
        "xaxis": {
            "type": "log",
            "title": {"text": "until all is done"},
            **_time_axis([*seconds, *([found.local.seconds.p90] if found.local.seconds else [])]),
        },
        "yaxis": {"title": {"text": "US dollars"}, "rangemode": "tozero", "tickprefix": "$", "tickformat": ",~r", "nticks": 6},
        "shapes": shapes,
        "annotations": words,
    }
    return go.Figure(data=[{**line, "hoverinfo": "skip"}, *traces], layout=layout)


def _point(name: str, e: Estimate, colour: str, named: bool, p: Palette) -> dict[str, Any]:
    x, y = _middle(e)
    seconds, usd = e.seconds or Range(x, x, x), e.usd
    low, high = (float(usd.p10), float(usd.p90)) if usd is not None else (y, y)
    told = f"<b>{label(name)}</b><br>{range_words(seconds)}<br>{usd_range(usd)}<extra></extra>"
    bar = {"type": "data", "symmetric": False, "color": colour, "thickness": 1, "width": 3}
    return {
        "type": "scatter",
        "mode": "markers+text",
        "x": [x],
        "y": [y],
        "text": [label(name, 28) if named else ""],
        "textposition": "top right",
        "textfont": {"color": p.ink, "size": SMALL_PX},
        "cliponaxis": False,
        "marker": {"color": colour, "size": 8},
        "error_x": {**bar, "array": [max(seconds.p90 - x, 0.0)], "arrayminus": [max(x - seconds.p10, 0.0)]},
        "error_y": {**bar, "array": [max(high - y, 0.0)], "arrayminus": [max(y - low, 0.0)]},
        "hovertemplate": told,
    }


def _middle(e: Estimate) -> tuple[float, float]:
    return (e.seconds.p50 if e.seconds else 0.0, float(e.usd.p50) if e.usd else 0.0)


def _colour(view: CompareView, key: str, p: Palette) -> str:
    if not key:
        return p.ink
    return p.accent if _named(view, key) else p.dim


def _named(view: CompareView, key: str) -> bool:
    """The box, and the APIs of run.toml."""
    found = view.way(key) if key else None
    return not key or (found is not None and found[0].configured)


def _box_without_price(local: Estimate, p: Palette) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """A box of which only the time is known is a line."""
    if local.seconds is None or local.usd is not None:
        return [], []
    x = local.seconds.p50
    line = {
        "type": "line",
        "xref": "x",
        "yref": "paper",
        "x0": x,
        "x1": x,
        "y0": 0,
        "y1": 1,
        "line": {"color": p.ink, "width": 1},
    }
    words = {
        "x": math.log10(max(x, 1.0)), "xref": "x", "y": 1, "yref": "paper", "xanchor": "right", "yanchor": "top", "xshift": -4,
        "text": f"{BOX}, cost not known", "font": {"size": TEXT_PX, "color": p.ink},
    }  # fmt: skip
    return [line], [words]


def _time_axis(seconds: list[float]) -> dict[str, Any]:
    low, high = max(min(seconds), 1.0) * 0.6, max(*seconds, 2.0) * 2.2
    marks = [at for at in FINE if low <= at <= high]
    if len(marks) > MOST_TICKS:
        marks = [at for at in COARSE if low <= at <= high]
    return {"range": [math.log10(low), math.log10(high)], "tickvals": marks, "ticktext": [FINE[at] for at in marks]}
