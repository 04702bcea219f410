"""A run's status in words and aligned columns. What is known is `status.py`'s; what a terminal may not see is escaped."""

from __future__ import annotations

from pathlib import Path

from backend.heartbeat import SupervisorState
from backend.records import DatasetState, EngineState, RunPhase
from backend.report.apis_text import apis_text
from backend.report.formatting import DASH, compact, duration, moment, number, plain, plural, share, table
from backend.report.headline import progress
from backend.report.views import DatasetView, RunView
from backend.run_dir import RunDir
from backend.runs import command_name


def status_text(view: RunView, end: str | None = None) -> str:
    """One sentence, then `end`, the supervisor, datasets, replicas, the last events and what could not be read."""
    parts = [
        f"{summary(view)}\n{end}" if end else summary(view),
        supervisor_sentence(view),
        _datasets(view),
        _replicas(view),
        apis_text(view),
        _events(view),
    ]
    if view.unanswered_intents:
        parts.insert(2, f"{plural(view.unanswered_intents, 'wish', 'wishes')} not answered yet.")
    parts.extend(f"Note: {note}" for note in view.notes)
    return plain("\n\n".join(part for part in parts if part))


def summary(view: RunView) -> str:
    """What runs and how far it is, in one sentence."""
    t = view.totals
    done = "how much is finished is not known"
    if t.finished_samples is not None and t.completion_tokens is not None:
        done = f"{plural(t.finished_samples, 'sample')} with {compact(t.completion_tokens)} tokens finished"
    alive = view.supervisor.state is SupervisorState.ALIVE
    active = [d.name for d in view.datasets if d.state in (DatasetState.RUNNING, DatasetState.DRAINING)]
    what = {
        RunPhase.STARTING: "is starting",
        RunPhase.RUNNING: f"runs {' and '.join(active)}" if active else _idle(view),
        RunPhase.DRAINING: "is stopping, requests in flight finish",
        RunPhase.STOPPING: "is stopping its engine",
        RunPhase.FINISHED: "is finished",
        RunPhase.STOPPED: "is stopped",
        RunPhase.FAILED: "has failed",
        None: "is starting" if alive else "has not been started",
    }[view.phase]
    if not alive and view.phase in (RunPhase.STARTING, RunPhase.RUNNING, RunPhase.DRAINING, RunPhase.STOPPING):
        what = "was interrupted" if view.supervisor.state is SupervisorState.DEAD else "gives no sign"
    speed = f", {number(view.tokens_per_s)} tokens/s" if alive and view.tokens_per_s is not None else ""
    stopped = f" Nothing is admitted: {view.admission_stopped}" if alive and view.admission_stopped else ""
    return f"{view.name} {what}: {done}{speed}.{stopped}"


def supervisor_sentence(view: RunView) -> str:
    """Whether somebody works on the run, and the command that helps where nobody does."""
    s = view.supervisor
    restart = f"python -m backend start {command_name(RunDir(Path(view.path)))}"
    seen = f"; its last sign of life was {duration(s.heartbeat_age_s)} ago" if s.heartbeat_age_s is not None else ""
    if s.state is SupervisorState.ALIVE:
        return f"Supervisor: alive (pid {s.pid if s.pid is not None else DASH})."
    if s.state is SupervisorState.NOT_ANSWERING:
        return (
            f"Supervisor: not answering (pid {s.pid if s.pid is not None else DASH}){seen}. Its machine may be overloaded or "
            f"its disk slow; if that lasts, end the process (kill {s.pid or 'PID'}), then: {restart}"
        )
    if s.state is SupervisorState.DEAD:
        return f"Supervisor: dead{seen}. What is finished is safe. Go on with: {restart}"
    if s.state is SupervisorState.NEVER_STARTED:
        return f"Supervisor: never started. Start it with: {restart}"
    how = {RunPhase.FINISHED: "the run is finished", RunPhase.STOPPED: "it was asked to stop"}.get(
        view.phase or RunPhase.FAILED, "it could not go on, the last events say why"
    )
    again = "" if view.phase is RunPhase.FINISHED else f" Go on with: {restart}"
    return f"Supervisor: left {duration(s.heartbeat_age_s)} ago, {how}.{again}"


def list_text(views: list[RunView], unreadable: list[tuple[str, str]]) -> str:
    """A line a run, then the runs that could not be read with the reason."""
    rows = [
        [
            v.name,
            v.phase.value if v.phase else DASH,
            v.supervisor.state.value,
            number(v.totals.finished_samples),
            compact(v.totals.completion_tokens),
            str(len(v.datasets)),
            v.model,
        ]
        for v in views
    ]
    parts = []
    if rows:
        parts.append(table(("run", "phase", "supervisor", "samples", "tokens", "datasets", "model"), rows, left=3))
    parts.extend(f"{name}: {reason}" for name, reason in unreadable)
    return plain("\n".join(parts))


def _idle(view: RunView) -> str:
    if not any(r.state is EngineState.READY for r in view.replicas):
        states = ", ".join(dict.fromkeys(r.state.value for r in view.replicas))
        return f"waits for its engine ({states})" if states else "waits for its engine"
    return "waits, no dataset may run"


def _datasets(view: RunView) -> str:
    head = (
        "dataset",
        "state",
        "samples",
        "of",
        "tokens",
        "of",
        "done",
        "mean",
        "in flight",
        "rejected",
        "retries",
        "bad lines",
    )
    rows = [_dataset_row(d) for d in view.datasets]
    reasons = [f"{d.name}: {d.reason}" for d in view.datasets if d.reason and d.state is not DatasetState.DONE]
    silent = view.supervisor.state in (SupervisorState.DEAD, SupervisorState.NOT_ANSWERING)
    title = ["Counts are exact, states are as last said:"] if silent else []
    return "\n".join([*title, table(head, rows, left=2), *reasons])


def _dataset_row(d: DatasetView) -> list[str]:
    state = d.state.value if d.state else DASH
    if d.state is DatasetState.DONE and d.reason:
        state += f" ({d.reason})"
    if d.wanted is not None and d.wanted is not d.state:
        state += f" → {d.wanted.value}"
    return [
        d.name,
        state,
        number(d.finished_samples),
        number(d.total_samples),
        compact(d.completion_tokens),
        compact(d.token_budget),
        share(progress(d), 1.0),
        number(d.mean_completion_tokens),
        number(d.in_flight),
        number(d.rejected),
        number(d.retries),
        number(d.bad_lines),
    ]


def _replicas(view: RunView) -> str:
    if not view.replicas or view.supervisor.state is SupervisorState.LEFT:
        return ""
    rows = [
        [
            r.name,
            r.state.value,
            duration(max(0.0, view.at - r.since)) if r.since is not None else DASH,
            number(r.in_flight),
            number(r.restarts),
            str(r.pid) if r.pid is not None else DASH,
            r.version or DASH,
            r.url or DASH,
        ]
        for r in view.replicas
    ]
    reasons = [f"{r.name}: {r.reason}" for r in view.replicas if r.reason]
    head = ("replica", "state", "for", "in flight", "restarts", "pid", "version", "url")
    title = [] if view.supervisor.state is SupervisorState.ALIVE else ["As last said:"]
    return "\n".join([*title, table(head, rows, left=2), *reasons])


def _events(view: RunView) -> str:
    if not view.events:
        return ""
    marks = {"warning": "warning: ", "error": "error: "}
    lines = (f"{moment(e.at)}  {marks.get(e.severity, '')}{plain(e.message, keep='')}" for e in view.events)
    return "\n".join(["Last events:", *lines])
