"""PURE: how a state looks, on pages and in what is shared: a sign, a word and a colour; no meaning hangs on colour alone.

The colours are named here (`Tone`) and stand in `pages/live/style.css`. What a state means is told in `backend.records`; pages
draw it by `pages/states.py`.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from backend.heartbeat import SupervisorState
from backend.records import DatasetState, EngineState, RunPhase, Severity
from backend.report.formatting import DASH
from backend.report.views import DatasetView, RunView


class Tone(StrEnum):
    """The colour of a state; `hw-<tone>` is its class in the stylesheet."""

    DONE = "done"  # green
    ACTIVE = "active"  # the accent
    PAUSED = "paused"  # amber
    FAILED = "failed"  # red
    DIM = "dim"


@dataclass(frozen=True, slots=True)
class Look:
    """One state as people see it."""

    sign: str
    word: str
    tone: Tone

    @property
    def text(self) -> str:
        """Sign and word, for a cell of a table: "▶ running"."""
        return f"{self.sign} {self.word}"


DATASETS: Final[dict[DatasetState, Look]] = {
    DatasetState.WAITING: Look("○", "waiting", Tone.DIM),
    DatasetState.RUNNING: Look("▶", "running", Tone.ACTIVE),
    DatasetState.DRAINING: Look("◐", "draining", Tone.ACTIVE),
    DatasetState.PAUSED: Look("❚❚", "paused", Tone.PAUSED),
    DatasetState.DONE: Look("✓", "done", Tone.DONE),
    DatasetState.KILLED: Look("■", "killed", Tone.DIM),
    DatasetState.HELD: Look("✕", "held", Tone.FAILED),
    DatasetState.FAILED: Look("✕", "failed", Tone.FAILED),
}
ENGINES: Final[dict[EngineState, Look]] = {
    EngineState.STOPPED: Look("■", "stopped", Tone.DIM),
    EngineState.STARTING: Look("◔", "starting", Tone.ACTIVE),
    EngineState.READY: Look("▶", "ready", Tone.ACTIVE),
    EngineState.STALLED: Look("✕", "stalled", Tone.FAILED),
    EngineState.RESTARTING: Look("↻", "restarting", Tone.PAUSED),
    EngineState.FAILED: Look("✕", "failed", Tone.FAILED),
    EngineState.STOPPING: Look("◐", "stopping", Tone.DIM),
}
PHASES: Final[dict[RunPhase, Look]] = {
    RunPhase.STARTING: Look("◔", "starting", Tone.ACTIVE),
    RunPhase.RUNNING: Look("▶", "running", Tone.ACTIVE),
    RunPhase.DRAINING: Look("◐", "stopping", Tone.ACTIVE),
    RunPhase.STOPPING: Look("◐", "stopping", Tone.ACTIVE),
    RunPhase.FINISHED: Look("✓", "finished", Tone.DONE),
    RunPhase.STOPPED: Look("■", "stopped", Tone.DIM),
    RunPhase.FAILED: Look("✕", "failed", Tone.FAILED),
}
SEVERITIES: Final[dict[str, Look]] = {
    Severity.INFO: Look("·", "note", Tone.DIM),
    Severity.WARNING: Look("▲", "warning", Tone.PAUSED),
    Severity.ERROR: Look("✕", "error", Tone.FAILED),
}
UNKNOWN: Final = Look(DASH, "not known", Tone.DIM)
NOT_BEGUN: Final = Look("○", "not begun", Tone.DIM)

# What was asked and is not yet so.
_ASKED: Final[dict[DatasetState, Look]] = {
    DatasetState.PAUSED: Look("◐", "pausing…", Tone.PAUSED),
    DatasetState.RUNNING: Look("◔", "resuming…", Tone.ACTIVE),
    DatasetState.KILLED: Look("◐", "killing…", Tone.FAILED),
}


def is_asked(dataset: DatasetView) -> bool:
    """Whether something was asked of the dataset that is not yet so."""
    return dataset.wanted is not None and dataset.wanted is not dataset.state and dataset.wanted in _ASKED


def of_dataset(dataset: DatasetView, *, alive: bool = True) -> Look:
    """A dataset's state; what was asked and is not yet so wins ("pausing…"). Without a living supervisor it is history."""
    if not alive and dataset.state in (DatasetState.RUNNING, DatasetState.DRAINING):
        return Look("○", f"was {dataset.state}", Tone.DIM)
    if is_asked(dataset) and dataset.wanted is not None:
        return _ASKED[dataset.wanted]
    return NOT_BEGUN if dataset.state is None else DATASETS[dataset.state]


def of_engine(state: EngineState) -> Look:
    """A replica's state."""
    return ENGINES[state]


def of_run(view: RunView) -> Look:
    """The run as a whole: its phase, unless nobody works on it any more."""
    match view.supervisor.state:
        case SupervisorState.NEVER_STARTED:
            return Look("○", "not started", Tone.DIM)
        case SupervisorState.DEAD:
            return Look("✕", "interrupted", Tone.FAILED)
        case SupervisorState.NOT_ANSWERING:
            return Look("✕", "not answering", Tone.FAILED)
    if view.phase is None:
        return PHASES[RunPhase.STARTING]
    if view.phase is RunPhase.RUNNING and _all_paused(view):
        return DATASETS[DatasetState.PAUSED]
    return PHASES[view.phase]


def of_severity(severity: str) -> Look:
    """How loud an event is."""
    return SEVERITIES.get(severity, SEVERITIES[Severity.INFO])


def look_of_event(kind: str, severity: str) -> Look:
    """An event on a chart: its severity, unless it says that something was done or is ready."""
    if severity == Severity.INFO and kind in ("dataset.done", "engine.ready", "engine.adopted", "gpu.back", "run.finished"):
        return Look("✓", "note", Tone.DONE)
    return of_severity(severity)


def _all_paused(view: RunView) -> bool:
    left = [d.state for d in view.datasets if d.state not in (DatasetState.DONE, DatasetState.KILLED, DatasetState.FAILED)]
    return bool(left) and all(state is DatasetState.PAUSED for state in left)
