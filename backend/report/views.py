"""What is told of a run: `RunView` is what `status --json` prints, and docs/cli.md documents each field in this order."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from backend.heartbeat import SupervisorState
from backend.records import ApiStatus, DatasetState, ReplicaStatus, RunPhase

SHAPE: Final = 1  # of the JSON; raised when a field goes or changes its meaning, not when one is added


@dataclass(frozen=True, slots=True)
class SupervisorView:
    """Whether somebody works on the run."""

    state: SupervisorState
    pid: int | None = None  # of the one that lives, else None
    life: int | None = None  # how often a supervisor was started for this run
    heartbeat_at: float | None = None  # epoch seconds
    heartbeat_age_s: float | None = None


@dataclass(frozen=True, slots=True)
class DatasetView:
    """One dataset: counts from the ledger, the rest from the last heartbeat (None without one)."""

    name: str
    state: DatasetState | None
    wanted: DatasetState | None
    reason: str | None
    finished_samples: int | None  # rejected ones included, superseded ones not; None where the ledger is lost
    total_samples: int | None  # what it comes to: prompts or max_samples, whichever is less; None until known
    prompts: int | None  # until the supervisor has counted them: the lines of the files, bad ones included
    max_samples: int | None
    max_new_tokens: int | None  # of one completion, for requests to come
    route: str  # where its next requests go: "local", an API's name, or "both:<name>"
    completion_tokens: int | None
    token_budget: int | None
    prompt_tokens: int | None
    mean_completion_tokens: float | None  # of the finished ones that were not rejected
    rejected: int | None
    superseded_samples: int | None
    in_flight: int | None
    retries: int | None
    bad_lines: int | None


@dataclass(frozen=True, slots=True)
class EventView:
    """Something that happened."""

    at: float
    kind: str
    subject: str
    severity: str
    message: str
    who: str


@dataclass(frozen=True, slots=True)
class TotalsView:
    """All datasets together."""

    finished_samples: int | None
    completion_tokens: int | None
    prompt_tokens: int | None
    rejected: int | None


@dataclass(frozen=True, slots=True)
class EndView:
    """When the run ends, by the newest forecast: an 80 % range."""

    kind: str  # of `ending.EndKind`
    said_at: float | None  # when it was reckoned, epoch seconds
    p10_at: float | None  # epoch seconds; None unless the run works
    p50_at: float | None
    p90_at: float | None
    p10_s: float | None  # active seconds left when it was reckoned
    p50_s: float | None
    p90_s: float | None
    why: str | None  # nothing is said
    left_out: tuple[str, ...]  # datasets that wait for somebody and are not in it


@dataclass(frozen=True, slots=True)
class RunView:
    """A whole run."""

    name: str
    path: str
    at: float  # when this was read, epoch seconds
    model: str
    engine_kind: str
    created_at: str | None  # ISO 8601, UTC
    fingerprint: str | None
    phase: RunPhase | None  # as last said; None before the first start
    supervisor: SupervisorView
    totals: TotalsView
    datasets: tuple[DatasetView, ...]  # in the order in which they run
    replicas: tuple[ReplicaStatus, ...]  # as last said: only true while the supervisor is alive
    apis: tuple[ApiStatus, ...]  # likewise; those of run.toml
    concurrency: int
    in_flight: int | None
    tokens_per_s: float | None
    requests_per_s: float | None
    admission_stopped: str | None
    prometheus_url: str | None
    deadline: str | None  # ISO 8601 with its offset
    exit_code: int | None
    unanswered_intents: int  # wishes that no supervisor has answered yet
    events: tuple[EventView, ...]  # the last ones, oldest first
    forecast: EndView | None = None  # where it was asked for
    notes: tuple[str, ...] = field(default=())  # what could not be read, and why
    shape: int = SHAPE
