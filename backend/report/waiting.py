"""PURE: whether what somebody waits for has come, or cannot come any more."""

from __future__ import annotations

from dataclasses import dataclass

from backend.heartbeat import SupervisorState
from backend.records import DatasetState, EngineState, RunPhase
from backend.report.status_text import summary, supervisor_sentence
from backend.report.views import RunView


@dataclass(frozen=True, slots=True)
class Goal:
    """What is waited for: the run's end, a ready engine, or a dataset's state."""

    ready: bool = False
    dataset: str | None = None
    state: DatasetState | None = None


@dataclass(frozen=True, slots=True)
class Verdict:
    """The wait is over."""

    reached: bool
    message: str


def parse_goal(text: str) -> Goal:
    """`finished`, `ready` or `<dataset>=<state>`. Raises ValueError with what may stand there."""
    if text == "finished":
        return Goal()
    if text == "ready":
        return Goal(ready=True)
    dataset, equals, state = text.partition("=")
    if not equals or not dataset or state not in tuple(DatasetState):
        raise ValueError(f"{text!r} is none of finished, ready, DATASET=STATE (STATE: {', '.join(DatasetState)})")
    return Goal(dataset=dataset, state=DatasetState(state))


def judge_wait(view: RunView, goal: Goal) -> Verdict | None:
    """The verdict, None as long as waiting makes sense. A supervisor that does not answer may come back: it is waited for."""
    state = view.supervisor.state
    if goal.dataset is not None:
        dataset = next(d for d in view.datasets if d.name == goal.dataset)
        if dataset.state is goal.state:
            return Verdict(True, f"{dataset.name} is {dataset.state}.")
    if goal.ready and state is SupervisorState.ALIVE and any(r.state is EngineState.READY for r in view.replicas):
        return Verdict(True, "The engine is ready.")
    if state in (SupervisorState.DEAD, SupervisorState.NEVER_STARTED):
        return Verdict(False, f"{view.name}: {supervisor_sentence(view)}")
    if state is SupervisorState.LEFT:
        if goal == Goal():
            return Verdict(view.phase is not RunPhase.FAILED, summary(view) + _why(view))
        return Verdict(False, f"What was waited for did not come: {summary(view)}{_why(view)}")
    return None


def _why(view: RunView) -> str:
    errors = [e.message for e in view.events if e.severity == "error"]
    return f" {errors[-1]}" if view.phase is RunPhase.FAILED and errors else ""
