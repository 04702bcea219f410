"""The vocabulary of Headway: states, intents, events, prompts and rows. Imports nothing of ours, so every part can share it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

Json = dict[str, Any]


class EngineState(StrEnum):
    """What an engine replica is doing, as the supervisor sees it."""

    STOPPED = "stopped"  # no process of ours, none wanted
    STARTING = "starting"  # process alive, the model loads
    READY = "ready"  # own process alive, the port is its own, it answers
    STALLED = "stalled"  # requests running or queued and no token for a while
    RESTARTING = "restarting"  # dead; waiting for the back-off to pass
    FAILED = "failed"  # gave up: too many restarts, or a start that cannot succeed
    STOPPING = "stopping"  # asked to end, not yet verified gone


class DatasetState(StrEnum):
    """What happens with a dataset."""

    WAITING = "waiting"  # its turn has not come
    RUNNING = "running"  # prompts are admitted
    DRAINING = "draining"  # nothing more is admitted, requests in flight finish
    PAUSED = "paused"  # by somebody's wish; nothing is admitted
    DONE = "done"  # budget, samples or prompts reached
    KILLED = "killed"  # by somebody's wish; what is finished stays; can be revived
    HELD = "held"  # a quality guard stopped it
    FAILED = "failed"  # it cannot go on (its prompt file is unreadable or has changed)


class DoneReason(StrEnum):
    """Which limit ended a dataset."""

    BUDGET = "budget"  # token_budget reached
    SAMPLES = "samples"  # max_samples reached
    PROMPTS = "prompts"  # no prompt left


class Outcome(StrEnum):
    """What a finished text is worth; a versioned rule over stored facts (`outcomes/rule.py`)."""

    OK = "ok"
    TRUNCATED = "truncated"  # ended by the cap on new tokens
    EMPTY = "empty"  # nothing after the reasoning
    THINKING_ONLY = "thinking_only"  # the reasoning was never closed, or no answer follows it
    DEGENERATE = "degenerate"  # a loop
    REJECTED = "rejected"  # the server refused the request for good


class ApiState(StrEnum):
    """What an API is doing for a run."""

    IDLE = "idle"  # nothing is routed there
    OPEN = "open"  # requests go there
    WAITING = "waiting"  # it asked to wait
    PAUSED = "paused"  # it refuses us (key, balance), or its key is missing; tried again now and then
    CAPPED = "capped"  # nothing more fits below its spend cap


class Severity(StrEnum):
    """How loud an event is."""

    INFO = "info"
    WARNING = "warning"
    ERROR = "error"


class IntentAction(StrEnum):
    """What somebody can want. The subject is `run`, `engine` or `dataset:<name>`."""

    STATE = "state"  # value: {"want": "running" | "paused" | "killed" | "stopped", "now": bool}
    SET = "set"  # value: {"key": ..., "value": ...}
    REDO = "redo"  # value: {"outcomes": ["empty", ...]}
    SWEEP = "sweep"  # of the run; value: {"levels": [1, 4, ...], "level_limit_s", "drain"}, {"cancel": true} or {"measured"}
    ROUTE = "route"  # value: {"to": "local" | <api name> | "both:<api name>"}
    PROBE = "probe"  # of the run; value: {"api": <api name>, "prompts": int, "cap_usd": float}


@dataclass(frozen=True, slots=True)
class Intent:
    """A wish, written as a row by a page or the CLI; repeating it is harmless (`token` makes a double click one wish)."""

    subject: str
    action: IntentAction
    value: Json
    who: str
    at: float  # epoch seconds
    token: str
    id: int | None = None  # row id in state.sqlite, known after writing


@dataclass(frozen=True, slots=True)
class Event:
    """Something that happened, in words a user reads."""

    at: float  # epoch seconds
    kind: str  # stable, dotted: "engine.restarted", "dataset.paused"
    subject: str  # "run", "engine", "engine:0", "dataset:B3", "gpu:2", "disk"
    message: str
    severity: Severity = Severity.INFO
    who: str = "supervisor"
    details: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Prompt:
    """One request to make: a prompt of a dataset, or one turn of a conversation."""

    dataset: str
    position: int  # 0-based place among the dataset's readable prompts, in file order
    sample_id: str
    messages: tuple[Json, ...]  # OpenAI messages, the answer to make excluded
    tools: tuple[Json, ...] | None = None
    turn: int = 0  # which assistant turn this makes (0-based); 0 unless turns = "all"
    later_turns: tuple[Json, ...] = ()  # what follows the assistant turn in the source, for turns = "all"
    attempt: int = 1  # 2 and up after a redo


@dataclass(frozen=True, slots=True)
class Facts:
    """What was seen in a finished text (`outcomes/facts.py` computes them; None where it could not be known)."""

    answer_tokens: int | None = None
    reasoning_closed: bool | None = None
    repeat_period: int | None = (
        None  # tokens in one turn of the loop that ends the text; 1: or one token dominates it; else None
    )
    repeat_share: float | None = None  # share of the text that this loop covers, 0..1
    simhash: int | None = None  # 64 bits as a signed integer (what SQLite and Parquet hold), of the answer


@dataclass(frozen=True, slots=True)
class Row:
    """One finished sample, as ledger and shards keep it. Times are epoch seconds, UTC."""

    dataset: str
    sample_id: str
    position: int
    turn: int
    attempt: int
    source: str  # "local", "adopted" (another script's) or the API's name
    model: str
    messages: str  # JSON: {"messages": [...], "tools": [...] | absent}
    prompt_token_ids: tuple[int, ...] | None
    prompt_tokens: int | None
    raw_text: str | None  # reasoning, tags and answer as generated
    reasoning: str | None
    answer: str | None
    tool_calls: str | None  # JSON list, None without any
    output_ids: tuple[int, ...] | None
    completion_tokens: int
    reasoning_tokens: int | None
    cached_tokens: int | None
    finish_reason: str  # stop, length, tool_calls, rejected
    facts: Facts
    started_at: float
    first_token_at: float | None
    finished_at: float
    server_epoch: str | None  # which life of which replica made it: "<replica>:<launch>"
    cost_usd: float | None
    error: str | None  # the server's words where finish_reason is "rejected"
    tokens_estimated: bool = False  # the server gave no usage: counted here


class RunPhase(StrEnum):
    """What the supervisor as a whole is doing."""

    STARTING = "starting"  # checks, ledger, adoption
    RUNNING = "running"  # datasets are driven, or wait for the engine
    DRAINING = "draining"  # asked to stop: requests in flight finish
    STOPPING = "stopping"  # the engine is being stopped
    FINISHED = "finished"  # every dataset has ended, the engine is stopped, the supervisor has left
    STOPPED = "stopped"  # left because somebody asked
    FAILED = "failed"  # left because it could not go on; the last event says why


@dataclass(frozen=True, slots=True)
class ReplicaStatus:
    """One engine replica, for people."""

    name: str
    state: EngineState
    reason: str | None = None  # why it is in this state, where that is not plain
    pid: int | None = None
    url: str | None = None
    version: str | None = None
    launch: str | None = None
    restarts: int = 0
    since: float | None = None  # epoch seconds
    in_flight: int = 0
    command: tuple[str, ...] = ()  # how it was started, secrets redacted; empty where somebody else started it


@dataclass(frozen=True, slots=True)
class DatasetStatus:
    """One dataset, for people. Counts are of samples that still count (superseded ones do not)."""

    name: str
    state: DatasetState
    wanted: DatasetState | None = None  # what was asked and is not yet so
    reason: str | None = None  # done: which limit; held, failed: why
    finished_samples: int = 0
    completion_tokens: int = 0
    prompt_tokens: int = 0
    rejected: int = 0
    in_flight: int = 0
    retries: int = 0
    bad_lines: int = 0
    prompts: int | None = None
    token_budget: int | None = None
    max_samples: int | None = None
    max_new_tokens: int | None = None  # of one completion, for requests to come
    route: str = "local"  # where its next requests go: "local", an API's name, or "both:<name>"


@dataclass(frozen=True, slots=True)
class ApiStatus:
    """One API of the run, for people. Money in USD; None: unknown."""

    name: str
    state: ApiState
    reason: str | None = None  # why it does not do more
    model: str | None = None  # that has answered
    provider: str | None = None
    in_flight: int = 0
    concurrency: int = 0  # requests that may be in flight now
    finished_samples: int = 0
    completion_tokens: int = 0
    spent_usd: float | None = None  # samples, and failed attempts as far as their bill is known
    unsure_usd: float = 0.0  # what answers that broke off may have cost beyond
    reserved_usd: float = 0.0  # what is in flight costs at worst
    cap_usd: float | None = None
    unpriced: int = 0  # answers whose cost is unknown: what was spent is more
    usd_per_minute: float | None = None
    tokens_per_s: float | None = None
    projected_usd: float | None = None  # once all that is routed there is made
    requests_per_minute: int | None = None  # limits, as far as they are known
    tokens_per_minute: int | None = None
    refused: int = 0  # 429, since the supervisor's start
    probing: bool = False


@dataclass(frozen=True, slots=True)
class JobStatus:
    """The supervisor's last word, written with each heartbeat. Rates are over the last minute; None until known."""

    phase: RunPhase
    concurrency: int
    in_flight: int
    datasets: tuple[DatasetStatus, ...]
    replicas: tuple[ReplicaStatus, ...]
    order: tuple[str, ...]
    tokens_per_s: float | None = None
    requests_per_s: float | None = None
    mean_completion_tokens: float | None = None
    admission_stopped: str | None = None  # why nothing is admitted (disk full, ...)
    prometheus_url: str | None = None
    deadline: str | None = None  # ISO 8601 with its offset
    exit_code: int | None = None  # once the supervisor has left: 0 finished or stopped, 1 failed
    apis: tuple[ApiStatus, ...] = ()
