"""What every chart of lines over time is made of: a line, broken where nothing was measured, in the viewer's time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, tzinfo
from typing import Any, Final

import plotly.graph_objects as go

from backend.report.chart_labels import label

GAP_STEPS: Final = 2.5  # a line is broken where points are further apart than so many steps


@dataclass(frozen=True, slots=True)
class Line:
    """One line: `values[i]` at `at[i]` (epoch seconds), None where nothing is known. `step_s` is what a point covers."""

    name: str
    at: Sequence[float]
    values: Sequence[float | None]
    step_s: float = 1.0


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


def add_line(figure: go.Figure, line: Line, colour: str, unit: str, zone: tzinfo, **more: Any) -> None:
    at, values = broken_at_gaps(line)
    utc = [datetime.fromtimestamp(moment, UTC).strftime("%H:%M:%S UTC") for moment in at]
    value_format = ",.0f" if highest_of([values]) >= 100 else ",.3~r"
    figure.add_scatter(
        x=[local_time(moment, zone) for moment in at],
        y=values,
        customdata=utc,
        name=label(line.name, 24),
        mode="lines",
        line={"color": colour, "width": 1.5},
        hovertemplate=f"{label(line.name, 24)}: <b>%{{y:{value_format}}}</b> {label(unit)} · %{{customdata}}<extra></extra>",
        **more,
    )


def highest_of(many: Sequence[Sequence[float | None]]) -> float:
    return max((v for values in many for v in values if v is not None), default=0.0) or 1.0


def local_time(at: float, zone: tzinfo) -> str:
    """Wall-clock time of the viewer: Plotly draws dates as they are written and knows no zones."""
    return datetime.fromtimestamp(at, zone).strftime("%Y-%m-%d %H:%M:%S.%f")[:-3]
