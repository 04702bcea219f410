"""The charts of the Data page: lengths by dataset, outcomes over time, and whether lengths drift."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, tzinfo
from typing import Final

import plotly.graph_objects as go

from backend.records import Outcome
from backend.report.chart_lines import local_time
from backend.report.chart_theme import Palette, faded
from backend.report.charts import TITLE_PX, Level, Line, label, palette, template, time_series
from backend.report.dataset_charts import STEP_WORDS, length_place, length_ticks
from backend.report.distributions import LengthsOf, Spans
from backend.report.formatting import number, plural

HEIGHT_PX: Final = 320
LEGEND_PX: Final = 40  # two lines on a narrow screen
ABOVE: Final = {"x": 0, "y": 1.01, "yanchor": "bottom"}  # below the plot it would lie on the axis' words
NAMED: Final = 12  # more datasets than these are not told apart by colour: those with the most answers are drawn


def lengths_chart(
    lengths: Sequence[LengthsOf], caps: Mapping[str, int | None], *, dark: bool = False, height_px: int = HEIGHT_PX
) -> go.Figure:
    """A line a dataset over a logarithmic axis, the share of its answers in each bin, and its cap as a dotted line."""
    drawn = sorted(sorted(lengths, key=lambda each: -each.answers)[:NAMED], key=lengths.index)
    p = palette(dark)
    traces = []
    shapes = []
    last = 0.0
    for i, each in enumerate(drawn):
        colour, name = p.series[i % len(p.series)], label(each.dataset, 24)
        edges = [length_place(edge) for edge in each.edges_tokens]
        traces.append(
            {
                "type": "scatter",
                "mode": "lines",
                # back to zero on both sides, so that a single bin is a bar
                "x": [edges[0], *edges],
                "y": [0.0, *each.shares, 0.0],
                "line": {"color": colour, "width": 1.5, "shape": "hv"},
                "name": name,
                "customdata": [each.edges_tokens[0], *each.edges_tokens],
                "hovertemplate": f"{name}: <b>%{{y:.1%}}</b> from %{{customdata:,.0f}} tokens<extra></extra>",
            }
        )
        last = max(last, edges[-1])
        if (cap := caps.get(each.dataset)) is not None:
            x = length_place(cap)
            last = max(last, x)
            shapes.append({"type": "line", "x0": x, "x1": x, "yref": "paper", "y0": 0, "y1": 1, "line": _dotted(colour)})
    known = sorted({cap for each in drawn if (cap := caps.get(each.dataset)) is not None})
    capped = f"; dotted: the cap of {' and of '.join(number(cap) for cap in known)}" if known else ""
    left_out = f"; {plural(len(lengths) - NAMED, 'smaller dataset')} left out" if len(lengths) > NAMED else ""
    first = min(length_place(each.edges_tokens[0]) for each in drawn)
    layout = {
        "template": template(dark),
        "title": {
            "text": "Lengths by dataset",
            "subtitle": {"text": f"Share of a dataset's answers by completion tokens, logarithmic axis{capped}{left_out}"},
        },
        "height": height_px,
        "showlegend": len(drawn) > 1,
        "hovermode": "closest",
        "legend": ABOVE,
        "margin": {"l": 8, "r": 12, "t": TITLE_PX + LEGEND_PX, "b": 8},
        "xaxis": {"title": {"text": "tokens"}, "range": [first, last + 0.5], **length_ticks(first, last)},
        "yaxis": {"nticks": 5, "tickformat": ".0%", "rangemode": "tozero"},
        "shapes": shapes,
    }
    return go.Figure(data=traces, layout=layout)


def outcomes_chart(spans: Spans, *, scope: str, zone: tzinfo = UTC, dark: bool = False) -> go.Figure:
    """Bars of what finished in each span, divided by outcome; `spans` holds at least one."""
    p = palette(dark)
    width_ms = spans.step_s * 1000
    traces = [
        {
            "type": "bar",
            "x": [local_time(at + spans.step_s / 2, zone) for at in spans.at],
            "y": list(shares),
            "width": width_ms,
            "name": outcome.value.replace("_", " "),
            "marker": {"color": colour_of(outcome, p), "line": {"width": 0.5, "color": p.page}},
            "customdata": list(spans.samples),
            "hovertemplate": f"{outcome.value.replace('_', ' ')}: <b>%{{y:.1%}}</b> of %{{customdata:,}}<extra></extra>",
        }
        for outcome, shares in spans.shares.items()
    ]
    layout = {
        "template": template(dark),
        "title": {
            "text": "Outcomes over time",
            "subtitle": {"text": label(f"{scope}; share of what finished in {STEP_WORDS[spans.step_s]}", 160)},
        },
        "height": HEIGHT_PX,
        "barmode": "stack",
        "bargap": 0,
        "showlegend": True,
        "legend": ABOVE,
        "margin": {"l": 8, "r": 12, "t": TITLE_PX + LEGEND_PX, "b": 8},
        "xaxis": {"type": "date", "nticks": 6},
        "yaxis": {"range": [0, 1], "nticks": 5, "tickformat": ".0%"},
    }
    return go.Figure(data=traces, layout=layout)


def drift_chart(spans: Spans, *, scope: str, cap_tokens: int | None, zone: tzinfo = UTC, dark: bool = False) -> go.Figure:
    """A tenth, half and nine tenths of the answers that finished in a span are shorter; `spans` holds at least one."""
    middle = [at + spans.step_s / 2 for at in spans.at]
    lines = [
        Line(name, middle, values, step_s=spans.step_s)
        for name, values in (("9 of 10", spans.p90_tokens), ("median", spans.p50_tokens), ("1 of 10", spans.p10_tokens))
    ]
    highest = max((value for value in spans.p90_tokens if value is not None), default=0.0)
    near = cap_tokens is not None and cap_tokens <= 2 * highest
    return time_series(
        lines,
        title="Do lengths drift?",
        subtitle=f"{scope}; so many of the answers that finished in {STEP_WORDS[spans.step_s]} are shorter",
        unit="tokens",
        since=spans.at[0],
        until=spans.at[-1] + spans.step_s,
        zone=zone,
        dark=dark,
        level=Level(float(cap_tokens), f"cap {number(cap_tokens)}") if cap_tokens is not None and near else None,
        top=float(max(highest, cap_tokens or 0)) if near else None,
        height_px=HEIGHT_PX,
    )


def colour_of(outcome: Outcome, p: Palette) -> str:
    """What is good, what was cut, what is bad."""
    return {
        Outcome.OK: faded(p.done, 0.75),
        Outcome.TRUNCATED: faded(p.paused, 0.85),
        Outcome.EMPTY: p.failed,
        Outcome.THINKING_ONLY: faded(p.failed, 0.7),
        Outcome.DEGENERATE: faded(p.failed, 0.45),
        Outcome.REJECTED: p.dim,
    }[outcome]


def _dotted(colour: str) -> dict[str, object]:
    return {"color": colour, "width": 1, "dash": "dot"}
