"""PURE: what of a run may leave the box: every field that those see who only watch, or to whom it is shared, is named here.

No prompt, no answer, no path, and no words of servers, events or errors, which can hold anything. What a state means for those
who can do nothing about it is said in words of our own.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from backend.heartbeat import SupervisorState
from backend.records import RunPhase
from backend.report.formatting import duration, plain
from backend.report.headline import age_words, headline, progress, share_done
from backend.report.looks import Look, of_dataset, of_run
from backend.report.views import DatasetView, RunView, TotalsView

FINGERPRINT_SHOWN: Final = 12  # of 64 digits: enough to tell runs apart
_WORKING: Final = frozenset({SupervisorState.ALIVE, SupervisorState.NOT_ANSWERING})


@dataclass(frozen=True, slots=True)
class PublicDataset:
    """One dataset."""

    name: str
    look: Look
    progress: float | None  # 0..1 of the limit that is nearest
    finished_samples: int | None
    total_samples: int | None  # what it comes to without a token budget
    completion_tokens: int | None
    token_budget: int | None
    mean_completion_tokens: float | None


@dataclass(frozen=True, slots=True)
class PublicRun:
    """A whole run. Times in epoch seconds."""

    name: str
    fingerprint: str | None
    model: str  # its name, without the folder it lies in
    simulated: bool
    at: float  # when this was read
    data_at: float | None  # the supervisor's last sign of life: what goes on is as it was then
    age: str | None  # from its creation until now or its end, in words
    look: Look
    sentence: str  # what runs and how far it is
    trouble: str | None  # what somebody else has to mend
    progress: float | None  # 0..1, all datasets together
    totals: TotalsView
    tokens_per_s: float | None  # None where nobody works on it
    datasets: tuple[PublicDataset, ...]  # in the order in which they run

    @property
    def data_age_s(self) -> float | None:
        """How old the newest word about it is."""
        return None if self.data_at is None else max(0.0, self.at - self.data_at)


def public_run(view: RunView) -> PublicRun:
    """The part of a run that others may see."""
    alive = view.supervisor.state in _WORKING
    return PublicRun(
        name=plain(view.name, keep=""),
        fingerprint=view.fingerprint,
        model=plain(view.model.rstrip("/").rpartition("/")[2], keep=""),
        simulated=view.engine_kind == "simulated",
        at=view.at,
        data_at=view.supervisor.heartbeat_at,
        age=age_words(view),
        look=of_run(view),
        sentence=headline(view),
        trouble=_trouble(view),
        progress=share_done(view),
        totals=view.totals,
        tokens_per_s=view.tokens_per_s if view.supervisor.state is SupervisorState.ALIVE else None,
        datasets=tuple(_dataset(d, alive=alive) for d in view.datasets),
    )


def _dataset(d: DatasetView, *, alive: bool) -> PublicDataset:
    return PublicDataset(
        name=d.name,
        look=of_dataset(d, alive=alive),
        progress=progress(d),
        finished_samples=d.finished_samples,
        total_samples=d.total_samples,
        completion_tokens=d.completion_tokens,
        token_budget=d.token_budget,
        mean_completion_tokens=d.mean_completion_tokens,
    )


def _trouble(view: RunView) -> str | None:
    s = view.supervisor
    silent = f" for {duration(s.heartbeat_age_s)}" if s.heartbeat_age_s is not None else ""
    if s.state is SupervisorState.DEAD:
        return f"Nobody works on this run: no sign of life{silent}. What is finished is safe; it goes on once it is restarted."
    if s.state is SupervisorState.NOT_ANSWERING:
        return f"This run gives no sign of life{silent}: what is shown is as it was then."
    if s.state is SupervisorState.LEFT and view.phase is RunPhase.FAILED:
        return "The run has failed. What is finished is safe; who operates it can see why."
    if view.admission_stopped and s.state is SupervisorState.ALIVE:
        return "Nothing new is asked for at the moment; who operates the run can see why."
    if view.notes:
        return "A part of what was recorded about this run cannot be read; what is missing is shown as –."
    return None
