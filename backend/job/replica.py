"""The vocabulary of engine replicas: what one server is seen to do and what can be asked of it. How each kind does it is in
server.py, container.py and attached.py; when to do what is the supervisor's business."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Protocol

import aiohttp

# Bytes in use on these GPUs (None: on all that are visible); None where nobody can say.
GpuMemoryUsed = Callable[[Sequence[int | str] | None], int | None]


class StartRefused(Exception):  # noqa: N818 - named by what happened, as the supervisor's words
    """A replica is not launched; the message is a sentence with its remedy."""


class AbortFailed(Exception):  # noqa: N818 - likewise
    """A server did not take an abort; the message says which and why."""


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Where requests go."""

    replica: str
    base_url: str  # without a trailing slash
    api_key: str | None = field(repr=False)
    launch: str  # id of this life of the server
    owned: bool  # may we abort everything, pause, flush, stop?


class ReplicaPhase(StrEnum):
    """What is seen of one replica."""

    ABSENT = "absent"  # no process of ours (attached: nothing answers there)
    LOADING = "loading"  # alive, not ready yet
    READY = "ready"  # own process alive, the port's listener is its own, it has answered
    EXITED = "exited"  # was ready, and ended
    START_FAILED = "start_failed"  # ended before it was ready, or nothing moved for ready_timeout_s (then `pid` is alive)


@dataclass(frozen=True, slots=True)
class ReplicaObservation:
    """What is seen of one replica at one moment. Times are epoch seconds."""

    replica: str
    phase: ReplicaPhase
    since: float  # when this phase began
    endpoint: Endpoint | None = None  # only while READY
    pid: int | None = None
    exit_code: int | None = None  # None as well where it cannot be known (a server of a former supervisor)
    reason: str | None = None  # a sentence and its remedy, with EXITED, START_FAILED (attached: ABSENT, LOADING)
    last_movement_at: float | None = None  # while LOADING: log, disk reads, memory or processes changed
    version: str | None = None  # the server's own word
    answers: bool | None = None  # the last answer of /ready was 200; False is not death: it may be busy
    command: list[str] = field(default_factory=list)  # secrets redacted


class AdoptOutcome(StrEnum):
    """What became of a former life's server."""

    ADOPTED = "adopted"  # proven ours and kept
    NOTHING = "nothing"  # there is none
    REAPED = "reaped"  # ours, but not usable: killed
    FOREIGN = "foreign"  # somebody else's process is in the way; it was left alone


@dataclass(frozen=True, slots=True)
class AdoptResult:
    """The outcome and, where there is something to say, a sentence."""

    outcome: AdoptOutcome
    reason: str | None = None


@dataclass(frozen=True, slots=True)
class StopReport:
    """What a stop did and what was verified."""

    clean: bool  # no process left, port free, GPU memory back (as far as it can be known)
    message: str  # in words
    exit_code: int | None = None
    killed: int = 0  # processes that had to be ended by SIGKILL


class Replica(Protocol):
    """One server, whatever starts it."""

    name: str

    def adopt(self) -> AdoptResult:
        """Takes over the server of a former supervisor, if it is proven ours. Called once, before anything else."""

    def launch(self, now: float) -> None:
        """Starts the server and returns at once. Raises StartRefused."""

    async def observe(self, session: aiohttp.ClientSession, now: float) -> ReplicaObservation:
        """What is seen now. Cheap (called each second); never waits long for a server that hangs."""

    async def stop(self, *, deadline_s: float) -> StopReport:
        """Ends the server and all its processes, `deadline_s` after the polite request by force, and verifies it."""

    async def abort(self, session: aiohttp.ClientSession, rids: Sequence[str] | None) -> None:
        """Aborts these requests; None: everything (owned servers only). Raises AbortFailed."""
