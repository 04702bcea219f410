"""What a sweep sees of slots and replicas: what stands in its way, and one replica's counters at one moment."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from backend.config import RunConfig
from backend.config.sglang_flags import split_flags
from backend.job.dataset_runner import DatasetRunner
from backend.job.replica import Endpoint
from backend.job.replica_keeper import ReplicaKeeper
from backend.job.slots import Slots
from backend.job.sweep_plan import ReplicaLook
from backend.job.wishes import RefusedError, Want, Wishes
from backend.telemetry import EngineSample

MAX_RUNNING: Final = "--max-running-requests"


def refuse_impossible(
    config: RunConfig,
    levels: Sequence[int],
    wishes: Wishes,
    *,
    slots: Slots,
    runners: Mapping[str, DatasetRunner],
    ready: Sequence[ReplicaKeeper],
) -> None:
    """Raises RefusedError where these levels cannot be measured now. `ready`: the replicas that are."""
    if wishes.run is not Want.RUNNING or not slots.admitting:
        raise RefusedError("The run admits no requests now: it stops, or its disk is full.")
    if not ready:
        raise RefusedError("No replica of the engine is ready: a sweep measures a server at work.")
    mute = [k.name for k in ready if k.sample is not None and k.sample.answered and k.sample.generated_tokens is None]
    if mute:
        raise RefusedError(
            f"Replica {mute[0]} does not tell how many tokens it makes: a sweep needs that. Start it with --enable-metrics."
        )
    if (problem := _no_prompts(slots, runners)) is not None:
        raise RefusedError(f"A sweep sends the run's own prompts, and {problem}.")
    most = _most_running(config, ready)
    if most is not None and max(levels) > most:
        raise RefusedError(
            f"The level {max(levels)} is more than the engine runs at once ({most:,.0f} on all ready replicas, see "
            f"{MAX_RUNNING}): the others would wait in its queue. Leave out levels above {most:,.0f}."
        )


def obstacle(wishes: Wishes, slots: Slots, runners: Mapping[str, DatasetRunner]) -> str | None:
    """Why a sweep that runs cannot go on."""
    if wishes.run is not Want.RUNNING:
        return "the run was asked to stop"
    if wishes.engine is not Want.RUNNING:
        return "the engine was asked to stop"
    if not slots.admitting:
        return "nothing is admitted: the disk is full, or the run ends"
    return _no_prompts(slots, runners)


def look_at(keeper: ReplicaKeeper, endpoint: Endpoint, to_clock_s: float) -> ReplicaLook:
    """One replica as a sweep sees it. `to_clock_s`: from epoch seconds to those of the sweep's clock."""
    sample = keeper.sample or EngineSample(key=keeper.name, at=float("-inf"))
    return ReplicaLook(
        name=keeper.name,
        life=endpoint.launch,
        # an engine publishes its counter every few steps, and says how long ago that was
        counted_at_s=sample.at - (sample.heartbeat_age_s or 0.0) + to_clock_s,
        tokens=sample.generated_tokens,
        held=sample.heartbeat_age_s is None,
        running=sample.running,
        queued=sample.queued,
        token_usage=sample.token_usage,
        kv_capacity_tokens=sample.kv_capacity_tokens,
        first_token_s=sample.first_token_s,
    )


def _no_prompts(slots: Slots, runners: Mapping[str, DatasetRunner]) -> str | None:
    ours = [runner for runner in runners.values() if slots.may_take(runner)]
    runs = any(r.open and r.fault is None and not (r.exhausted and not r.in_flight) for r in ours)
    return None if runs else "no dataset runs here (they are paused, killed, held, finished, or sent to an API)"


def _most_running(config: RunConfig, ready: Sequence[ReplicaKeeper]) -> float | None:
    """Requests that the ready replicas run at once; None where nobody says."""
    told = [keeper.sample.max_running_requests if keeper.sample else None for keeper in ready]
    known = [most for most in told if most is not None]
    if len(known) == len(ready):
        return sum(known)
    values = dict(split_flags(config.engine.args)).get(MAX_RUNNING, [])
    return int(values[-1]) * len(ready) if values and values[-1].isdigit() else None
