"""Small multiples: the same measure of many things (GPUs, replicas), one above the other, on one time axis and one scale."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, tzinfo
from typing import Any, Final

import plotly.graph_objects as go

from backend.report.chart_labels import label
from backend.report.chart_lines import Line, area_traces, highest_of, local_time
from backend.report.chart_theme import SMALL_PX, faded, palette, template
from backend.report.formatting import DASH

TITLE_PX: Final = 52


@dataclass(frozen=True, slots=True)
class Panel:
    """One row of small multiples."""

    name: str
    line: Line
    now: str = ""  # the present value in words, at the panel's right


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
    highest = top if top is not None else highest_of([*(panel.line.values for panel in panels), [level or 0.0]])
    count = len(panels)
    between = 0.28 / count if count > 1 else 0.0  # room for the panel's name
    each = (1 - between * count) / count if count else 1.0
    small = {"size": SMALL_PX, "color": p.dim}
    scale = {"range": [0, highest * 1.04], "tickvals": [highest], "tickfont": small, "anchor": "x"}
    scale["tickformat"] = ",~s" if highest >= 10_000 else ",.0f"
    dotted = {"color": p.dim, "width": 1, "dash": "dot"}
    # all at once: Plotly copies everything it has with each part that is added to a figure
    traces: list[dict[str, Any]] = []
    words: list[dict[str, Any]] = []
    levels: list[dict[str, Any]] = []
    axes: dict[str, dict[str, Any]] = {}
    for i, panel in enumerate(panels):
        bottom = max(0.0, 1 - (i + 1) * (each + between))
        number = "" if i == 0 else str(i + 1)
        axes[f"yaxis{number}"] = {**scale, "domain": [bottom, bottom + each]}
        traces += area_traces(panel.line, p.accent, faded(p.accent, 0.10), unit, zone, yaxis=f"y{number}")
        edge = {"xref": "paper", "yref": "paper", "y": bottom + each, "yanchor": "bottom", "font": {**small, "color": p.ink}}
        now = panel.now if any(v is not None for v in panel.line.values) else DASH
        words.append({**edge, "x": 0, "xanchor": "left", "text": label(panel.name, 24)})
        words.append({**edge, "x": 1, "xanchor": "right", "text": label(now, 24)})
        if level is not None:
            place = {"xref": "paper", "x0": 0, "x1": 1, "yref": f"y{number}", "y0": level, "y1": level}
            levels.append({"type": "line", **place, "line": dotted})
    span = {"range": [local_time(since, zone), local_time(until, zone)], "type": "date", "nticks": 3}
    layout = {
        "template": template(dark),
        "title": {"text": label(title, 120), "subtitle": {"text": label(subtitle, 160)}},
        "height": TITLE_PX + 34 + panel_px * count,
        "margin": {"l": 4, "r": 6, "t": TITLE_PX, "b": 8},
        "hovermode": "x",
        "xaxis": {**span, "anchor": "free", "position": 0, "tickfont": small},
        "annotations": words,
        "shapes": levels,
        **axes,
    }
    return go.Figure(data=traces, layout=layout)
