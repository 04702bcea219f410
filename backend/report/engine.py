"""PURE: the engine in a sentence, its replicas as rows, its measurements as charts."""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, tzinfo
from typing import Any, Final

import plotly.graph_objects as go

from backend.heartbeat import SupervisorState
from backend.records import EngineState, ReplicaStatus
from backend.report.charts import Line, Mark, time_series
from backend.report.formatting import DASH, number, plural
from backend.report.views import EventView, RunView
from backend.telemetry_store import Series

KINDS: Final = {
    "local": "SGLang on this machine",
    "container": "SGLang in a container",
    "attached": "Servers that somebody else runs",
    "simulated": "A simulated engine, no model answers",
}
_WANTED_STATES: Final = frozenset({EngineState.STARTING, EngineState.READY, EngineState.STALLED, EngineState.RESTARTING})
FIELDS: Final = (
    "decode_tokens_per_s", "prefill_tokens_per_s", "running", "queued", "token_usage", "retracted_per_s", "cache_hit_rate",
    "spec_accept_length",
)  # fmt: skip


_MARKED: Final = {
    "engine.ready": "ready",
    "engine.adopted": "taken over",
    "engine.stopped": "stopped",
    "engine.ended": "ended",
    "engine.start_failed": "start failed",
    "engine.stalled": "stalled",
    "engine.failed": "given up",
    "engine.lost_requests": "lost requests",
}  # an event's short words on a chart; its own stand in the table


@dataclass(frozen=True, slots=True)
class _Chart:
    """How one measurement is drawn."""

    field: str
    title: str
    subtitle: str
    unit: str
    factor: float = 1.0
    top: float | None = None
    only_if_known: bool = False


_CHARTS: Final = (
    _Chart("decode_tokens_per_s", "Decoding", "Completion tokens per second", "tokens/s"),
    _Chart("prefill_tokens_per_s", "Prefill", "Prompt tokens per second, without what the prefix cache gave", "tokens/s"),
    _Chart("token_usage", "KV cache in use", "Share of the pool, of the fullest rank", "%", 100, 100),
    _Chart("cache_hit_rate", "Prefix cache hits", "Share of prompt tokens that were there already", "%", 100, 100),
    _Chart("retracted_per_s", "Retractions", "Requests per minute that were put back for want of KV cache", "/min", 60),
    _Chart("spec_accept_length", "Speculative decoding", "Tokens accepted a verify step", "tokens", only_if_known=True),
)


def engine_sentence(view: RunView) -> str:
    """What the engine does, in one or two sentences; also what is only known from before."""
    kind = KINDS.get(view.engine_kind, view.engine_kind)
    state = view.supervisor.state
    if state is SupervisorState.NEVER_STARTED:
        return f"{kind}. It starts with the run."
    if state is SupervisorState.DEAD:
        return f"{kind}. Nobody watches it: the supervisor is gone. Servers it left may still run; a restart takes them over."
    if state is SupervisorState.LEFT:
        return f"{kind}. It is stopped, as the run has ended."
    if not view.replicas:
        return f"{kind}. Nothing is said of it yet."
    states = Counter(replica.state for replica in view.replicas)
    total = len(view.replicas)
    versions = sorted({r.version for r in view.replicas if r.version})
    version = f" with SGLang {' and '.join(versions)}" if versions and view.engine_kind != "simulated" else ""
    if states[EngineState.READY] == total:
        what = f"Ready{version}" if total == 1 else f"All {total} replicas are ready{version}"
    elif total == 1:
        what = view.replicas[0].state.value.capitalize()
    else:
        parts = [f"{count} {s.value}" for s, count in states.most_common()]
        what = f"Of {total} replicas {', '.join(parts)}"
    load = f"; {plural(view.in_flight, 'request')} in flight" if view.in_flight else ""
    silent = " The supervisor does not answer: this is what it said last." if state is SupervisorState.NOT_ANSWERING else ""
    return f"{kind}. {what}{load}.{silent}"


def is_wanted(view: RunView, pending: str | None) -> bool:
    """Whether the engine is meant to run: by what was just asked, else by what it does."""
    if pending is not None:
        return pending == "running"
    return any(replica.state in _WANTED_STATES for replica in view.replicas)


def is_known_now(view: RunView) -> bool:
    """Whether what was said of the replicas still holds: a supervisor lives, or stopped them before it left."""
    return view.supervisor.state in (SupervisorState.ALIVE, SupervisorState.LEFT)


def command_line(replica: ReplicaStatus) -> str | None:
    """How it was started, as a shell would take it, secrets redacted; None where it is not known."""
    return shlex.join(replica.command) if replica.command else None


def engine_figures(
    lines: Mapping[str, Series],
    events: Sequence[EventView],
    *,
    since: float,
    until: float,
    zone: tzinfo = UTC,
    dark: bool = False,
) -> dict[str, go.Figure]:
    """Field → chart, each with a line a replica; empty where nothing was measured."""
    if not lines:
        return {}
    marks = [_mark(e, several=len(lines) > 1) for e in events if e.kind in _MARKED]
    scope = "each replica" if len(lines) > 1 else ""
    shape: dict[str, Any] = {"since": since, "until": until, "zone": zone, "dark": dark}
    figures: dict[str, go.Figure] = {}
    for chart in _CHARTS:
        drawn = [_line(key, series, chart.field, chart.factor) for key, series in lines.items()]
        if chart.only_if_known and not any(v is not None for line in drawn for v in line.values):
            continue
        words = ", ".join(part for part in (chart.subtitle, scope) if part)
        figures[chart.field] = time_series(
            drawn, title=chart.title, subtitle=words, unit=chart.unit, top=chart.top, marks=marks, **shape
        )
        if chart.field == "prefill_tokens_per_s":
            both = [_total("running", lines), _total("queued", lines)]
            figures["running"] = time_series(
                both,
                title="Requests at the engine",
                subtitle="Running and queued, all replicas",
                unit="requests",
                marks=marks,
                **shape,
            )
    return figures


def replica_load(newest: Mapping[str, Mapping[str, float | None]], name: str) -> str:
    """What a replica does just now: "96 running, 2 queued, KV 71 %"."""
    now = newest.get(name)
    if now is None:
        return DASH
    usage = now.get("token_usage")
    kv = DASH if usage is None else f"{usage:.0%}"
    return f"{number(now.get('running'))} running, {number(now.get('queued'))} queued, KV {kv}"


def _mark(event: EventView, *, several: bool) -> Mark:
    words = _MARKED[event.kind]
    replica = event.subject.removeprefix("engine:")
    return Mark(event.at, f"{replica} {words}" if several else words, event.severity)


def _line(key: str, series: Series, field: str, factor: float) -> Line:
    values = [None if v is None else float(v) * factor for v in series.values[field]]
    return Line(f"replica {key}", series.at, values, series.step_s)


def _total(field: str, lines: Mapping[str, Series]) -> Line:
    """The sum over the replicas that were measured at a moment."""
    sums: dict[int, float] = {}
    step_s = max(series.step_s for series in lines.values())
    for series in lines.values():
        for at, value in zip(series.at, series.values[field], strict=True):
            if value is not None:
                moment = at // step_s * step_s
                sums[moment] = sums.get(moment, 0.0) + float(value)
    moments = sorted(sums)
    return Line(field, moments, [sums[m] for m in moments], step_s)
