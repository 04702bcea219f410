"""What every chart of lines over time is made of: a line, broken where nothing was measured, in the viewer's time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, tzinfo
from typing import Any, Final

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


def line_trace(line: Line, colour: str, unit: str, zone: tzinfo, **more: Any) -> dict[str, Any]:
    """Plotly's trace of a line; the hover text tells UTC."""
    at, values = broken_at_gaps(line)
    value_format = ",.0f" if highest_of([values]) >= 100 else ",.3~r"
    return {
        "type": "scatter",
        "x": [local_time(moment, zone) for moment in at],
        "y": values,
        "customdata": [datetime.fromtimestamp(moment, UTC).strftime("%H:%M:%S UTC") for moment in at],
        "name": label(line.name, 24),
        **_drawn_as(values, colour),
        "line": {"color": colour, "width": 1.5},
        "hovertemplate": f"{label(line.name, 24)}: <b>%{{y:{value_format}}}</b> {label(unit)} · %{{customdata}}<extra></extra>",
        **more,
    }


def area_traces(line: Line, colour: str, fill: str, unit: str, zone: tzinfo, **more: Any) -> list[dict[str, Any]]:
    """A line and the area below it in the colour `fill`, both with a gap where nothing was measured.

    Plotly fills across gaps, so that with gaps the area is a trace of its own: it falls to zero at both sides of each.
    """
    at, values = broken_at_gaps(line)
    own = line_trace(line, colour, unit, zone, **more)
    known = [i for i, value in enumerate(values) if value is not None]
    if not known or len(known) == known[-1] - known[0] + 1:
        return [{**own, "fill": "tozeroy", "fillcolor": fill}]
    corners = _corners(at, values)
    area = {
        "type": "scatter",
        "mode": "lines",
        "x": [local_time(moment, zone) for moment, _ in corners],
        "y": [value for _, value in corners],
        "line": {"width": 0},
        "fill": "tozeroy",
        "fillcolor": fill,
        "hoverinfo": "skip",
        "showlegend": False,
        **more,
    }
    return [area, own]


def _corners(at: Sequence[float], values: Sequence[float | None]) -> list[tuple[float, float]]:
    """The upper edge of an area, at zero between the parts that are known."""
    corners: list[tuple[float, float]] = []
    known_at: float | None = None
    for moment, value in zip(at, values, strict=True):
        if value is None:
            if known_at is not None:
                corners.append((known_at, 0.0))
            known_at = None
            continue
        if known_at is None:
            corners.append((moment, 0.0))
        corners.append((moment, value))
        known_at = moment
    return corners


def _drawn_as(values: Sequence[float | None], colour: str) -> dict[str, Any]:
    """As a line; a value with nothing known beside it has none, and is a dot."""
    beside = [None, *values, None]
    alone = [
        value is not None and before is None and after is None
        for before, value, after in zip(beside, values, beside[2:], strict=False)
    ]
    if not any(alone):
        return {"mode": "lines"}
    return {"mode": "lines+markers", "marker": {"color": colour, "size": [5 if each else 0 for each in alone]}}


def highest_of(many: Sequence[Sequence[float | None]]) -> float:
    return max((v for values in many for v in values if v is not None), default=0.0) or 1.0


def local_time(at: float, zone: tzinfo) -> str:
    """Wall-clock time of the viewer: Plotly draws dates as they are written and knows no zones."""
    return datetime.fromtimestamp(at, zone).strftime("%Y-%m-%d %H:%M:%S.%f")[:-3]
