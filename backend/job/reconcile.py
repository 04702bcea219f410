"""Compares what is wanted with what is, and says what to do. Pure: `reconcile(wishes, observed, now)` → actions.

It decides; `supervisor.py` carries out. An action already under way is not asked for again, because what is observed says
so; repeating a wish is therefore harmless.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from backend.job.wishes import DatasetWish, Want, Wishes
from backend.records import DatasetState, DoneReason, EngineState, RunPhase

ENDED = frozenset({DatasetState.DONE, DatasetState.KILLED, DatasetState.FAILED})


@dataclass(frozen=True, slots=True)
class RestartPolicy:
    """When a replica is started again. Times in seconds."""

    backoff_s: float
    backoff_max_s: float
    max_restarts: int  # within window_s
    window_s: float
    max_failed_starts: int = 3  # in a row, without having been ready once

    def wait_s(self, failures: int) -> float:
        """How long to wait after that many failures in a row (1, 2, ...)."""
        return float(min(self.backoff_s * 2.0 ** max(0, failures - 1), self.backoff_max_s))


@dataclass(frozen=True, slots=True)
class ObservedReplica:
    """One replica as it is."""

    name: str
    state: EngineState
    owned: bool  # we start and stop it
    stalled: bool = False  # its life has been found to make no tokens although it has work
    ended_at: float | None = None  # when its last life ended
    end_reason: str | None = None
    lives_ended: tuple[float, ...] = ()  # when its former lives ended, oldest first
    failed_starts: int = 0  # in a row


@dataclass(frozen=True, slots=True)
class ObservedDataset:
    """One dataset as it is."""

    name: str
    state: DatasetState
    in_flight: int
    limit: DoneReason | None  # the limit that its finished samples have reached, once nothing more would be admitted
    exhausted: bool  # no prompt is left to start or to start again
    admits: bool  # its limits would let one more request in
    fault: str | None = None  # why it cannot go on
    in_pilot: bool = False  # all that is in flight was sent before its turn
    hold: str | None = None  # why a quality guard holds it
    reason: str | None = None  # of its state, as it is told now


@dataclass(frozen=True, slots=True)
class Observed:
    """The whole run as it is."""

    phase: RunPhase
    replicas: tuple[ObservedReplica, ...]
    datasets: tuple[ObservedDataset, ...]
    checking: bool = False  # what would make a start fail is still being looked for
    drain_overdue: bool = False  # asked to stop, and requests in flight did not finish within the limit
    apis_work: bool = False  # something that is left is routed to an API: the run goes on without its engine


@dataclass(frozen=True, slots=True)
class Launch:
    """Start a replica."""

    replica: str


@dataclass(frozen=True, slots=True)
class StopReplica:
    """End a replica's life."""

    replica: str
    reason: str


@dataclass(frozen=True, slots=True)
class GiveUpReplica:
    """Try no more."""

    replica: str
    reason: str


@dataclass(frozen=True, slots=True)
class AwaitRestart:
    """A life has ended; the next begins after the back-off."""

    replica: str


@dataclass(frozen=True, slots=True)
class SetDatasetState:
    """A dataset changes."""

    dataset: str
    state: DatasetState
    reason: str | None = None


@dataclass(frozen=True, slots=True)
class AbortDataset:
    """Requests in flight are aborted; their prompts keep their place."""

    dataset: str


@dataclass(frozen=True, slots=True)
class SetPhase:
    """The run as a whole changes."""

    phase: RunPhase
    reason: str | None = None


Action = Launch | StopReplica | GiveUpReplica | AwaitRestart | SetDatasetState | AbortDataset | SetPhase


def reconcile(wishes: Wishes, observed: Observed, policy: RestartPolicy, now: float) -> list[Action]:
    """What to do next, in the order in which it is to be done."""
    actions: list[Action] = []
    stopping = wishes.run is Want.STOPPED
    for dataset in observed.datasets:
        actions += _reconcile_dataset(wishes.datasets[dataset.name], dataset, stopping=stopping)
        if stopping and dataset.in_flight and (wishes.run_now or observed.drain_overdue):
            actions.append(AbortDataset(dataset.name))
    phase, reason = _next_phase(wishes, observed, actions)
    if phase is not observed.phase:
        actions.append(SetPhase(phase, reason))
    wanted = phase in (RunPhase.STARTING, RunPhase.RUNNING, RunPhase.DRAINING) and wishes.engine is Want.RUNNING
    for replica in observed.replicas:
        actions += _reconcile_replica(replica, policy, now, wanted=wanted, may_launch=phase is RunPhase.RUNNING)
    return actions


def _reconcile_dataset(wish: DatasetWish, dataset: ObservedDataset, *, stopping: bool) -> Iterable[Action]:
    target, reason = _dataset_target(wish, dataset, stopping=stopping)
    # a pause that was taken back while its last requests finish: the state stays, its reason does not
    if target is not dataset.state or (target is DatasetState.DRAINING and reason != dataset.reason):
        yield SetDatasetState(dataset.name, target, reason)
    if wish.now and wish.want is not Want.RUNNING and dataset.in_flight:
        yield AbortDataset(dataset.name)


def _dataset_target(wish: DatasetWish, dataset: ObservedDataset, *, stopping: bool) -> tuple[DatasetState, str | None]:
    if dataset.fault is not None:
        return DatasetState.FAILED, dataset.fault
    if wish.want is Want.KILLED:
        return DatasetState.KILLED, None
    if not dataset.in_flight and dataset.limit is not None:
        return DatasetState.DONE, dataset.limit.value
    if not dataset.in_flight and dataset.exhausted:
        return DatasetState.DONE, DoneReason.PROMPTS.value
    if wish.want is Want.PAUSED:
        draining = dataset.in_flight and not wish.now
        return (DatasetState.DRAINING, "pausing") if draining else (DatasetState.PAUSED, dataset.hold)
    if dataset.hold is not None:
        return DatasetState.HELD, dataset.hold
    if dataset.in_pilot and dataset.admits and not dataset.exhausted and not stopping:
        return DatasetState.WAITING, None
    if dataset.in_flight:
        draining = stopping or dataset.exhausted or not dataset.admits
        return (DatasetState.DRAINING if draining else DatasetState.RUNNING), None
    return DatasetState.WAITING, None


def _next_phase(wishes: Wishes, observed: Observed, planned: list[Action]) -> tuple[RunPhase, str | None]:
    in_flight = any(dataset.in_flight for dataset in observed.datasets)
    gone = all(not r.owned or r.state in (EngineState.STOPPED, EngineState.FAILED) for r in observed.replicas)
    states = {d.name: d.state for d in observed.datasets}
    states |= {action.dataset: action.state for action in planned if isinstance(action, SetDatasetState)}
    ended = all(state in ENDED for state in states.values())
    redo = any(wish.redo for wish in wishes.datasets.values())
    all_failed = bool(observed.replicas) and all(r.state is EngineState.FAILED for r in observed.replicas)
    if wishes.run is Want.STOPPED:
        if in_flight and (observed.apis_work or not all_failed):
            return RunPhase.DRAINING, None
        return (RunPhase.STOPPED, None) if gone else (RunPhase.STOPPING, None)
    if ended and not in_flight and not redo:
        if not gone:
            return RunPhase.STOPPING, "every dataset has ended"
        failed = [name for name, state in states.items() if state is DatasetState.FAILED]
        return (RunPhase.FAILED, f"failed: {', '.join(failed)}") if failed else (RunPhase.FINISHED, None)
    if all_failed and wishes.engine is Want.RUNNING and not observed.apis_work:
        return RunPhase.FAILED, "; ".join(dict.fromkeys(r.end_reason or "no reason known" for r in observed.replicas))
    if observed.checking and observed.phase is RunPhase.STARTING:
        return RunPhase.STARTING, None
    return RunPhase.RUNNING, None


def _reconcile_replica(
    replica: ObservedReplica, policy: RestartPolicy, now: float, *, wanted: bool, may_launch: bool
) -> Iterable[Action]:
    alive = replica.state in (EngineState.STARTING, EngineState.READY, EngineState.STALLED)
    if replica.state in (EngineState.STOPPING, EngineState.FAILED):
        return
    if not wanted:
        if alive and replica.owned:
            yield StopReplica(replica.name, "no longer wanted")
        elif replica.state is EngineState.RESTARTING:
            yield StopReplica(replica.name, "no longer wanted; what may be left of it is cleared")
        return
    if alive:
        if replica.stalled and replica.owned:
            yield StopReplica(replica.name, "requests were waiting and no token came")
        return
    if replica.ended_at is None:
        if may_launch:
            yield Launch(replica.name)
        return
    recent = sum(1 for at in replica.lives_ended if now - at < policy.window_s)
    if replica.failed_starts >= policy.max_failed_starts:
        yield GiveUpReplica(replica.name, f"{replica.failed_starts} starts failed: {replica.end_reason or 'no reason known'}")
    elif recent > policy.max_restarts:
        hours = policy.window_s / 3600
        yield GiveUpReplica(
            replica.name, f"it ended {recent} times within {hours:g} h: {replica.end_reason or 'no reason known'}"
        )
    elif replica.state is not EngineState.RESTARTING:
        yield AwaitRestart(replica.name)
    elif may_launch and not 0 <= now - replica.ended_at < policy.wait_s(
        max(1, recent)
    ):  # a clock that was set back waits for none
        yield Launch(replica.name)
