"""The colours of charts, taken from .streamlit/config.toml so that they stand in one place, and Plotly's template of them."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Final

import plotly.graph_objects as go

CONFIG: Final = Path(__file__).resolve().parents[2] / ".streamlit" / "config.toml"
TITLE_PX: Final = 14
TEXT_PX: Final = 12.5
SMALL_PX: Final = 11


@dataclass(frozen=True, slots=True)
class Palette:
    """Colours as `#rrggbb`, by what they mean."""

    page: str
    panel: str
    ink: str
    dim: str
    line: str
    grid: str
    accent: str
    done: str
    paused: str
    failed: str
    series: tuple[str, ...]  # for several lines of one chart; the first is the accent
    font: str

    def of_severity(self, severity: str) -> str:
        """What an event's line is drawn in."""
        return {"error": self.failed, "warning": self.paused}.get(severity, self.dim)


@cache
def palette(dark: bool) -> Palette:
    """The colours of the light or the dark theme."""
    theme: dict[str, Any] = tomllib.loads(CONFIG.read_text())["theme"]
    colours = theme["dark" if dark else "light"]
    return Palette(
        page=colours["backgroundColor"],
        panel=colours["secondaryBackgroundColor"],
        ink=colours["textColor"],
        dim=colours["grayColor"],
        line=colours["borderColor"],
        grid=colours["dataframeBorderColor"],
        accent=colours["primaryColor"],
        done=colours["greenColor"],
        paused=colours["orangeColor"],
        failed=colours["redColor"],
        series=tuple(colours["chartCategoricalColors"]),
        font=theme["font"],
    )


@cache
def template(dark: bool) -> go.layout.Template:
    """Hairline grid, no frame, no legend, one type scale, transparent ground."""
    p = palette(dark)
    axis = {
        "gridcolor": p.grid,
        "gridwidth": 1,
        "griddash": "solid",
        "zeroline": False,
        "linecolor": p.line,
        "tickcolor": p.line,
        "tickfont": {"color": p.dim, "size": TEXT_PX},
        "title": {"font": {"color": p.dim, "size": TEXT_PX}},
        "automargin": True,
    }
    clear = "rgba(0,0,0,0)"
    layout = go.Layout(
        font={"family": p.font, "size": TEXT_PX, "color": p.ink},
        paper_bgcolor=clear,
        plot_bgcolor=clear,
        colorway=list(p.series),
        xaxis={**axis, "showgrid": False, "showline": True, "ticks": "outside", "ticklen": 4, "tickangle": 0},
        yaxis={**axis, "showline": False, "ticks": ""},
        title={
            "font": {"size": TITLE_PX, "color": p.ink, "weight": 600},
            "subtitle": {"font": {"size": TEXT_PX, "color": p.dim}},
            "x": 0,
            "xref": "container",
            "xanchor": "left",
            "y": 1,
            "yref": "container",
            "yanchor": "top",
            "pad": {"t": 8, "l": 4},
        },
        showlegend=False,
        legend={"orientation": "h", "x": 0, "y": -0.12, "yanchor": "top", "font": {"color": p.dim}},
        hovermode="x unified",
        hoverlabel={"bgcolor": p.panel, "bordercolor": p.line, "font": {"color": p.ink, "size": TEXT_PX}},
        annotationdefaults={"showarrow": False, "font": {"color": p.dim, "size": SMALL_PX}},
        margin={"l": 8, "r": 12, "t": 56, "b": 8},
        dragmode="zoom",
    )
    return go.layout.Template(layout=layout)


def faded(colour: str, share: float) -> str:
    """A colour of which `share` (0..1) covers what lies under it, as a range's fill."""
    red, green, blue = (int(colour[i : i + 2], 16) for i in (1, 3, 5))
    return f"rgba({red},{green},{blue},{share:g})"
