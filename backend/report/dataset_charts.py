"""The charts of one dataset: how long its answers are, and how fast they come."""

from __future__ import annotations

import math
from datetime import UTC, tzinfo
from itertools import pairwise
from typing import Final

import plotly.graph_objects as go

from backend.report.charts import Line, Mark, histogram, time_series
from backend.report.dataset import BINS_PER_OCTAVE, Lengths, Pace, edge_tokens
from backend.report.formatting import number

CAP_SHOWN_BINS: Final = 3 * BINS_PER_OCTAVE  # a cap further than this beyond the longest answer is told in words only
NARROW_PX: Final = 300  # of a plot on a phone: words that do not collide there do so nowhere
STEP_WORDS: Final = {60: "a minute", 300: "5 minutes", 900: "15 minutes", 3600: "an hour", 21600: "6 hours", 86400: "a day"}
_TICKS: Final = tuple(step * 10**power for power in range(7) for step in (1, 3))


def lengths_chart(lengths: Lengths, cap_tokens: int | None, *, dark: bool = False) -> go.Figure:
    """A histogram over a logarithmic axis, with the median and the cap marked. `lengths` holds at least one bin."""
    edges, counts = list(lengths.edges_tokens), list(lengths.counts)
    first = round(length_place(edges[0]))
    if cap_tokens is not None and length_place(cap_tokens) - length_place(edges[-1]) <= CAP_SHOWN_BINS:
        while edges[-1] <= cap_tokens:
            edges.append(edge_tokens(first + len(edges)))
            counts.append(0)
    marks = (
        [Mark(length_place(lengths.p50_tokens), f"median {number(lengths.p50_tokens)}")]
        if lengths.p50_tokens is not None
        else []
    )
    if cap_tokens is not None and cap_tokens <= edges[-1]:
        marks.append(Mark(length_place(cap_tokens), f"cap {number(cap_tokens)}"))
    ten_and_ninety = f"8 of 10 lie between {number(lengths.p10_tokens)} and {number(lengths.p90_tokens)}"
    figure = histogram(
        [length_place(edge) for edge in edges],
        counts,
        title="Length of the finished answers",
        subtitle=f"Answers by completion tokens, {ten_and_ninety}; logarithmic axis",
        unit="tokens",
        counted="answers",
        marks=marks,
        dark=dark,
        width_px=NARROW_PX,
    )
    figure.update_traces(customdata=[[math.ceil(a), math.ceil(b) - 1] for a, b in pairwise(edges)])
    return figure.update_xaxes(**length_ticks(length_place(edges[0]), length_place(edges[-1])))


def pace_chart(pace: Pace, *, now: float, zone: tzinfo = UTC, dark: bool = False) -> go.Figure:
    """Tokens an hour over time; `pace` holds at least one span."""
    middle = [at + pace.step_s / 2 for at in pace.at]
    return time_series(
        [Line("tokens/h", middle, pace.tokens_per_hour, step_s=pace.step_s)],
        title="Completion tokens an hour",
        subtitle=f"By when their answers finished, in steps of {STEP_WORDS[pace.step_s]}",
        unit="tokens/h",
        since=pace.at[0],
        until=min(now, pace.at[-1] + pace.step_s),
        zone=zone,
        dark=dark,
    )


def length_ticks(first: float, last: float) -> dict[str, list[float] | list[str]]:
    """Round lengths between two places of that axis."""
    ticks = [tick for tick in _TICKS if first <= length_place(tick) <= last]
    return {"tickvals": [length_place(tick) for tick in ticks], "ticktext": [_short(tick) for tick in ticks]}


def _short(tokens: int) -> str:
    return f"{tokens // 1_000_000}M" if tokens >= 1_000_000 else f"{tokens // 1000}k" if tokens >= 1000 else str(tokens)


def length_place(tokens: float) -> float:
    """Where a length lies on a logarithmic axis: one unit a bin."""
    return BINS_PER_OCTAVE * math.log2(tokens + 1)
