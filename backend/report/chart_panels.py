"""Small multiples: the same measure of many things (GPUs, replicas), one above the other, on one time axis and one scale."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, tzinfo
from typing import Final

import plotly.graph_objects as go

from backend.report.chart_labels import label
from backend.report.chart_lines import Line, add_line, highest_of, local_time
from backend.report.chart_theme import SMALL_PX, faded, palette, template

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
    figure = go.Figure(layout={"template": template(dark)})
    highest = top if top is not None else highest_of([*(panel.line.values for panel in panels), [level or 0.0]])
    count = len(panels)
    between = 0.28 / count if count > 1 else 0.0  # room for the panel's name
    each = (1 - between * count) / count if count else 1.0
    for i, panel in enumerate(panels):
        bottom = 1 - (i + 1) * (each + between)
        axis = "y" if i == 0 else f"y{i + 1}"
        fill = {"fill": "tozeroy", "fillcolor": faded(p.accent, 0.10), "yaxis": axis}
        add_line(figure, panel.line, p.accent, unit, zone, **fill)
        name = "yaxis" if i == 0 else f"yaxis{i + 1}"
        scale = {"domain": [max(0.0, bottom), bottom + each], "range": [0, highest * 1.04], "tickvals": [highest]}
        figure.update_layout(
            {
                name: {
                    **scale,
                    "tickformat": ",~s" if highest >= 10_000 else ",.0f",
                    "tickfont": {"size": SMALL_PX, "color": p.dim},
                    "anchor": "x",
                }
            }
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
    span = {"range": [local_time(since, zone), local_time(until, zone)], "type": "date", "nticks": 4}
    figure.update_xaxes(**span, anchor="free", position=0, tickfont={"size": SMALL_PX, "color": p.dim})
    return figure
