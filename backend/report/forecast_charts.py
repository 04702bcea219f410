"""The charts of a forecast: finished tokens to the end, how the end moved since the start, the datasets on a time axis.

Each takes a `ForecastView` and answers None where there is nothing to draw.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, tzinfo
from typing import Any, Final

import plotly.graph_objects as go

from backend.records import DatasetState
from backend.report.chart_labels import Mark, label, place
from backend.report.chart_lines import Line, local_time
from backend.report.chart_theme import Palette, faded, palette, template
from backend.report.charts import LANE_PX, PLOT_WIDTH_PX, TITLE_PX, Level, mark_lines, mark_words, narrow_meta, time_series
from backend.report.end_words import DAY_S, Span, moment_words, span_words
from backend.report.forecast import DatasetEnd, ForecastView
from backend.report.formatting import compact, plural

BAND: Final = 0.16  # how much of what lies under it a range covers
ROW_PX: Final = 40
SHORT_GAP_S: Final = 15.0  # a busy machine measures a little late: a step is taken for this much at least
HISTORY_PX: Final = 280
SECONDS_TOLD_S: Final = 400  # on a shorter axis minutes alone would repeat


def fan_chart(view: ForecastView, zone: tzinfo = UTC, dark: bool = False) -> go.Figure | None:
    """Finished tokens so far, and the band in which they are going to the end."""
    past, band, basis = view.finished, view.band, view.basis
    if basis is not None and band is not None:
        past = past.until(basis.at)
    if not past.at and band is None:
        return None
    p = palette(dark)
    now = basis.at if basis is not None and band is not None else past.at[-1]
    since = past.at[0] if past.at else now
    until = max(now, since + 60.0)
    line = Line("finished", past.at, past.tokens, max(past.step_s, SHORT_GAP_S))
    level, top, marks, extra = None, None, list(view.events), []
    if band is not None and view.ending.span is not None:
        ahead = [local_time(now + after, zone) for after in band.after_s]
        until = now + band.after_s[-1]
        top = max(band.p90[-1], *past.tokens, 1.0) if past.tokens else band.p90[-1]
        level = Level(band.p50[-1], f"likely {compact(band.p50[-1])}")
        marks.append(Mark(now, "now"))
        clear = {"type": "scatter", "mode": "lines", "line": {"width": 0}, "hoverinfo": "skip", "x": ahead}
        high = {"fill": "tonexty", "fillcolor": faded(p.accent, BAND)}
        hover = "likely: <b>%{y:,.3s}</b> tokens<extra></extra>"
        likely = {"line": {"color": p.accent, "width": 1.5, "dash": "dash"}, "hoverinfo": "all", "hovertemplate": hover}
        extra = [{**clear, "y": band.p10}, {**clear, "y": band.p90, **high}, {**clear, "y": band.p50, **likely}]
    figure = time_series(
        [line],
        title="Finished tokens and where they are going" if extra else "Finished tokens",
        subtitle="Completion tokens of all datasets" + ("; band: where 8 of 10 outcomes lie" if extra else ""),
        unit="tokens",
        since=since,
        until=until,
        zone=zone,
        dark=dark,
        marks=marks,
        level=level,
        top=top,
        height_px=320,
    )
    figure.add_traces([go.Scatter(trace) for trace in extra])
    figure.update_layout(yaxis_tickformat=",~s", xaxis=_ticks(until - since))
    return figure


def range_history_chart(view: ForecastView, zone: tzinfo = UTC, dark: bool = False) -> go.Figure | None:
    """The end as it was said at each time, against what is said now."""
    said = view.history
    if len(said) < 2:
        return None
    p = palette(dark)
    at = [local_time(one.at, zone) for one in said]
    since, until = said[0].at, max(said[-1].at, said[0].at + 60.0)
    placed = place(view.changes, since, until, width_px=PLOT_WIDTH_PX)
    lanes = max((mark.lane + 1 for mark in placed if mark.lane is not None), default=0)
    head_px = TITLE_PX + 6 + lanes * LANE_PX
    plot_px = HISTORY_PX - head_px - 30
    clear = {"type": "scatter", "mode": "lines", "x": at, "line": {"width": 0}}
    told = [span_words(one.end, one.at, zone) for one in said]
    likely = [moment_words(one.end.p50, one.at, zone) for one in said]
    traces = [
        {**clear, "y": [local_time(one.end.p10, zone) for one in said], "hoverinfo": "skip"},
        {
            **clear,
            "y": [local_time(one.end.p90, zone) for one in said],
            "hoverinfo": "skip",
            "fill": "tonexty",
            "fillcolor": faded(p.accent, BAND),
        },
        {
            **clear,
            "y": [local_time(one.end.p50, zone) for one in said],
            "line": {"color": p.accent, "width": 1.5},
            "customdata": list(zip(told, likely, strict=True)),
            "hovertemplate": "%{customdata[0]}, most likely <b>%{customdata[1]}</b><extra></extra>",
        },
    ]
    current = local_time(said[-1].end.p50, zone)
    dotted = {"color": p.dim, "width": 1, "dash": "dot"}
    across = {"type": "line", "xref": "paper", "x0": 0, "x1": 1, "yref": "y", "y0": current, "y1": current, "line": dotted}
    layout = {
        "template": template(dark),
        "title": {
            "text": "How the range moved",
            "subtitle": {"text": f"The end as said at each time; dotted: what is said now. {_changed(view.changes)}"},
        },
        "height": HISTORY_PX,
        "margin": {"l": 8, "r": 12, "t": head_px, "b": 8},
        "xaxis": {"range": [local_time(since, zone), local_time(until, zone)], "type": "date", **_ticks(until - since)},
        "yaxis": {"type": "date", **_ticks(max(one.end.p90 for one in said) - min(one.end.p10 for one in said))},
        "annotations": [mark_words(m, local_time(m.mark.at, zone), plot_px) for m in placed if m.lane is not None],
        "meta": narrow_meta(placed, since, until),
        "shapes": [*mark_lines(placed, lambda at: local_time(at, zone), plot_px, lambda _: p.dim), across],
    }
    return go.Figure(data=traces, layout=layout)


def datasets_chart(view: ForecastView, zone: tzinfo = UTC, dark: bool = False) -> go.Figure | None:
    """A row a dataset: when it ran, and when it is expected to."""
    rows = [row for row in view.datasets if row.begun_at is not None or row.end is not None]
    if not rows:
        return None
    p = palette(dark)
    moments = [at for row in rows for at in (row.begun_at, row.ended_at, *(_ends(row.end))) if at is not None]
    since, until = min(moments), max(*moments, view.at)
    margin = max((until - since) * 0.02, 30.0)
    traces: list[dict[str, Any]] = []
    words: list[dict[str, Any]] = []
    for i, row in enumerate(rows):
        traces += _bars(row, -i, view.at, zone, p)
        edge = {"xref": "paper", "yref": "y", "y": 0.2 - i, "yanchor": "bottom"}
        words.append({**edge, "x": 0, "xanchor": "left", "text": label(row.name, 28), "font": {"color": p.ink}})
        words.append({**edge, "x": 1, "xanchor": "right", "text": label(_when(row, view.at, zone), 60)})
    here = local_time(view.at, zone)
    line = {"type": "line", "xref": "x", "x0": here, "x1": here, "yref": "paper", "y0": 0, "y1": 1}
    layout = {
        "template": template(dark),
        "title": {
            "text": "Datasets in time",
            "subtitle": {"text": "Solid: so far. Pale: the 80 % range of its end, the tick is the likely one. Dotted: now"},
        },
        "height": TITLE_PX + 70 + ROW_PX * len(rows),
        "margin": {"l": 6, "r": 8, "t": TITLE_PX + 4, "b": 8},
        "hovermode": "closest",
        "xaxis": {
            "range": [local_time(since - margin, zone), local_time(until + margin, zone)],
            "type": "date",
            **_ticks(until - since),
        },
        "yaxis": {"range": [0.35 - len(rows), 0.85], "showgrid": False, "showticklabels": False},
        "annotations": words,
        "shapes": [{**line, "line": {"color": p.dim, "width": 1, "dash": "dot"}}],
    }
    return go.Figure(data=traces, layout=layout)


def _bars(row: DatasetEnd, y: int, now: float, zone: tzinfo, p: Palette) -> list[dict[str, Any]]:
    bars = []
    if row.begun_at is not None:
        stands = row.state in (DatasetState.PAUSED, DatasetState.HELD, DatasetState.FAILED, DatasetState.KILLED)
        colour = p.done if row.state is DatasetState.DONE else p.dim if stands else p.accent
        bars.append(_bar(row.begun_at, row.ended_at if row.ended_at is not None else now, y, zone, colour))
    if row.end is not None:
        begin = row.begins_at if row.begins_at is not None else now
        if begin < row.end.p10:
            bars.append(_bar(begin, row.end.p10, y, zone, faded(p.accent, 0.45)))
        bars.append(_bar(row.end.p10, row.end.p90, y, zone, faded(p.accent, 0.22)))
        tick = {"symbol": "line-ns", "size": 11, "line": {"width": 2, "color": p.accent}}
        at = {"x": [local_time(row.end.p50, zone)], "y": [y]}
        bars.append({"type": "scatter", "mode": "markers", **at, "marker": tick, "hoverinfo": "skip"})
    return bars


def _bar(begin: float, end: float, y: int, zone: tzinfo, colour: str) -> dict[str, Any]:
    told = [datetime.fromtimestamp(at, zone).strftime("%a %H:%M") for at in (begin, end)]
    return {
        "type": "scatter",
        "mode": "lines",
        "x": [local_time(begin, zone), local_time(max(end, begin), zone)],
        "y": [y, y],
        "line": {"color": colour, "width": 9},
        "customdata": [told, told],
        "hovertemplate": "%{customdata[0]} – %{customdata[1]}<extra></extra>",
    }


def _when(row: DatasetEnd, now: float, zone: tzinfo) -> str:
    if row.end is not None:
        return span_words(row.end, now, zone)
    if row.ended_at is not None:
        return f"{row.state or 'ended'} {moment_words(row.ended_at, now, zone)}"
    return str(row.state or "")


def _ticks(span_s: float) -> dict[str, Any]:
    """Few and short, so that they stand beside each other on a narrow screen; days without hours where there are many."""
    if span_s > 5 * DAY_S:
        return {"nticks": 5, "tickformat": "%-d %b"}
    return {"nticks": 5, "tickformat": "%H:%M:%S" if span_s < SECONDS_TOLD_S else "%H:%M\n%-d %b"}


def _ends(end: Span | None) -> Sequence[float | None]:
    return () if end is None else (end.p10, end.p90)


def _changed(changes: Sequence[Mark]) -> str:
    return f"{plural(len(changes), 'change')} of what is wanted marked." if changes else "What is wanted did not change."
