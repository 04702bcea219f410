"""One replica through its lives: what state it is in, when its lives ended and why, whether it still makes tokens.

It watches and carries out; whether to start or stop is `reconcile.py`'s decision, how it is done the `Replica`'s.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Final

import aiohttp

from backend.job.life_watch import LifeWatch
from backend.job.lives import Lives
from backend.job.reconcile import ObservedReplica, RestartPolicy
from backend.job.replica import Endpoint, Replica, ReplicaObservation, ReplicaPhase, StartRefused, StopReport
from backend.job.stall import Verdict
from backend.records import EngineState, Event, ReplicaStatus, Severity
from backend.telemetry import EngineSample

log = logging.getLogger(__name__)

OBSERVE_EVERY_S: Final = 1.0
WAIT_EVERY_S: Final = 0.25  # while it is not ready
_ALIVE: Final = frozenset({EngineState.STARTING, EngineState.READY, EngineState.STALLED})
_ENDED_PHASES: Final = frozenset({ReplicaPhase.EXITED, ReplicaPhase.START_FAILED})


class ReplicaKeeper:
    """Holds a replica's state. All of it belongs to the event loop."""

    def __init__(
        self,
        replica: Replica,
        session: aiohttp.ClientSession,
        *,
        owned: bool,
        stall_after_s: float,
        stop_deadline_s: float,
        in_flight_and_answered: Callable[[], tuple[int, int]],
        emit: Callable[[Event], None],
        now: Callable[[], float],
        clock: Callable[[], float] | None = None,
    ) -> None:
        """`now` tells epoch seconds; `clock` seconds that are never set (default: `now`), for what stands still."""
        self.name = replica.name
        self.replica = replica
        self.owned = owned
        self.state = EngineState.STOPPED
        self.reason: str | None = None
        self.since = now()
        self.sample: EngineSample | None = None
        self.throughput_problem: str | None = None
        self.lost_requests = False  # the server has forgotten requests of ours; false again once they were sent again
        self._in_flight_and_answered = in_flight_and_answered  # ours that are there now; answered in this life
        self._seen: ReplicaObservation | None = None
        self._session = session
        self._stop_deadline_s = stop_deadline_s
        self._stall_after_s = stall_after_s
        self._emit = emit
        self._now = now
        self._clock = clock or now
        self._life: LifeWatch | None = None  # the newest that was ready
        self._lives = Lives()
        self._stopping: asyncio.Task[None] | None = None

    # -- what others ask -----------------------------------------------------------------------------------------------------

    @property
    def endpoint(self) -> Endpoint | None:
        """Where requests may go now; None while it is not ready."""
        return self._seen.endpoint if self.state is EngineState.READY and self._seen else None

    @property
    def in_flight(self) -> int:
        """Requests of ours that are there now."""
        return self._in_flight_and_answered()[0]

    def observed(self) -> ObservedReplica:
        """As `reconcile` wants it."""
        return ObservedReplica(
            name=self.name,
            state=self.state,
            owned=self.owned,
            stalled=self.state is EngineState.STALLED,
            ended_at=self._lives.ended_at,
            end_reason=self._lives.end_reason,
            lives_ended=tuple(self._lives.ends),
            failed_starts=self._lives.failed_starts,
        )

    def status(self) -> ReplicaStatus:
        """As people want it."""
        seen = self._seen if self.state in _ALIVE else None
        return ReplicaStatus(
            name=self.name,
            state=self.state,
            reason=self.reason,
            pid=seen.pid if seen else None,
            url=seen.endpoint.base_url if seen and seen.endpoint else None,
            version=seen.version if seen else None,
            launch=seen.endpoint.launch if seen and seen.endpoint else None,
            restarts=len(self._lives.ends),
            since=self.since,
            in_flight=self.in_flight,
            command=tuple(seen.command) if seen else (),
        )

    # -- what the supervisor asks for ------------------------------------------------------------------------------------------

    def adopted(self) -> None:
        """Its server is a former supervisor's, proven ours."""
        self._become(EngineState.STARTING, "taken over from the former supervisor")

    def launch(self) -> None:
        """Starts a new life; a refusal counts as a start that failed."""
        self._seen = None
        self._become(EngineState.STARTING, None)
        try:
            self.replica.launch(self._now())
        except StartRefused as error:
            self._end_life(f"not started: {error}", failed_start=True)

    def await_restart(self, policy: RestartPolicy) -> None:
        """The last life is over; the next one begins after the back-off."""
        wait_s = policy.wait_s(max(1, self._lives.recent(self._now(), policy.window_s)))
        ended = (self._lives.end_reason or "it ended").rstrip(".")
        self._become(EngineState.RESTARTING, f"{ended}; the next start in {wait_s:.0f} s")

    def give_up(self, reason: str, *, told: bool = False) -> None:
        """No further life. `told`: an event has said why already."""
        self._become(EngineState.FAILED, reason)
        self._lives.end_reason = reason
        if not told:
            words = f"Replica {self.name}: {reason}"
            self._emit(Event(self._now(), "engine.failed", f"engine:{self.name}", words, Severity.ERROR))

    def forgive(self) -> None:
        """Somebody asked to start it (again): former ends no longer count."""
        self._lives.forgive()
        if self.state in (EngineState.FAILED, EngineState.RESTARTING):
            self._become(EngineState.STOPPED, None)

    def stop(self, reason: str) -> None:
        """Ends this life in the background; the state is `stopping` until nothing is left of it."""
        if self._stopping is None or self._stopping.done():
            failed = self.state is EngineState.STALLED
            self._become(EngineState.STOPPING, reason)
            self._stopping = asyncio.create_task(self._stop(reason, failed=failed))

    # -- watching ----------------------------------------------------------------------------------------------------------

    async def watch(self) -> None:
        """Observes for ever, about once a second."""
        while True:
            try:
                if self.state in _ALIVE or not self.owned:
                    await self.observe()
            except Exception:
                log.exception("replica %s could not be observed", self.name)
                self._emit(
                    Event(self._now(), "engine.unobserved", f"engine:{self.name}", "An error in Headway itself; see its log.")
                )
            await asyncio.sleep(OBSERVE_EVERY_S if self.state is EngineState.READY else WAIT_EVERY_S)

    async def observe(self) -> None:
        """Looks once and draws the conclusions."""
        seen = await self.replica.observe(self._session, self._now())
        if self.state not in _ALIVE and self.owned:
            return  # stopped meanwhile
        self._seen = seen
        if seen.phase in _ENDED_PHASES:
            await self._life_ended(seen)
        elif seen.phase is ReplicaPhase.READY and seen.endpoint is not None:
            await self._alive(seen.endpoint)
        elif not self.owned:
            state = EngineState.STARTING if seen.phase is ReplicaPhase.LOADING else EngineState.RESTARTING
            self._become(state, seen.reason)
        elif seen.phase is ReplicaPhase.ABSENT and self.state in _ALIVE:
            await self._life_ended(seen)

    async def _alive(self, endpoint: Endpoint) -> None:
        if self._life is None or self._life.launch != endpoint.launch:
            self._life = LifeWatch(self._session, endpoint, replica=self.name, stall_after_s=self._stall_after_s)
            self.lost_requests = False
        life = self._life
        if self.state in (EngineState.STARTING, EngineState.RESTARTING, EngineState.STOPPED):
            self._lives.failed_starts = 0
            self._become(EngineState.READY, None)
            version = self._seen.version if self._seen else None
            words = f"Replica {self.name} is ready at {endpoint.base_url}" + (f", SGLang {version}." if version else ".")
            self._emit(Event(self._now(), "engine.ready", f"engine:{self.name}", words))
        self.sample, verdict = await life.look(
            self._now(), every_s=OBSERVE_EVERY_S, clock=self._clock, in_flight_and_answered=self._in_flight_and_answered
        )
        self.throughput_problem = life.throughput_problem
        self.lost_requests |= verdict is Verdict.LOST_REQUESTS
        if verdict is Verdict.STALLED and self.state is EngineState.READY:
            words = f"{life.in_flight} requests are waiting and for {self._stall_after_s:g} s no token came"
            self._become(EngineState.STALLED, words)
            self._emit(
                Event(self._now(), "engine.stalled", f"engine:{self.name}", f"Replica {self.name}: {words}.", Severity.ERROR)
            )
        elif verdict is Verdict.MOVING and self.state is EngineState.STALLED:
            self._become(EngineState.READY, None)

    async def _life_ended(self, seen: ReplicaObservation) -> None:
        """It ended by itself: what may be left of it (orphans, a held port) is cleared before the next start."""
        failed_start = seen.phase is ReplicaPhase.START_FAILED
        reason = seen.reason or "its process is gone"
        self._become(EngineState.STOPPING, reason)
        report = await self._end(deadline_s=0 if seen.pid is None else self._stop_deadline_s)
        if not report.clean:
            reason = f"{reason} {report.message}"
        self._end_life(reason, failed_start=failed_start)

    async def _stop(self, reason: str, *, failed: bool) -> None:
        report = await self._end(deadline_s=self._stop_deadline_s)
        severity = Severity.INFO if report.clean else Severity.WARNING
        self._emit(Event(self._now(), "engine.stopped", f"engine:{self.name}", _sentence(report.message), severity))
        if failed:
            self._end_life(reason, failed_start=False)
        else:
            self._lives.ended_at = None
            self._become(EngineState.STOPPED, None)

    async def _end(self, *, deadline_s: float) -> StopReport:
        """What ending it came to. After an error of our own the state must not stay `stopping` for ever."""
        try:
            return await self.replica.stop(deadline_s=deadline_s)
        except Exception as error:
            log.exception("replica %s could not be ended", self.name)
            words = f"replica {self.name}: it could not be ended ({type(error).__name__}: {error}); logs/supervisor.log has it"
            return StopReport(clean=False, message=words)

    def _end_life(self, reason: str, *, failed_start: bool) -> None:
        now = self._now()
        self._lives.end(now, reason, failed_start=failed_start)
        self.sample = None
        self._become(EngineState.STOPPED, reason)
        kind = "engine.start_failed" if failed_start else "engine.ended"
        self._emit(Event(now, kind, f"engine:{self.name}", f"Replica {self.name}: {reason}", Severity.ERROR))

    def _become(self, state: EngineState, reason: str | None) -> None:
        if state is not self.state:
            self.since = self._now()
        self.state, self.reason = state, reason


def _sentence(words: str) -> str:
    """Reports begin with the replica's name; events begin with a capital and end with a full stop."""
    return words[:1].upper() + words[1:].rstrip(".") + "."
