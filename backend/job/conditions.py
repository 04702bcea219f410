"""What a person should know of a run that goes on all the same, in words. `alarms.py` tells each once when it begins and once
when it is over."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final

from backend.config import EngineConfig
from backend.job.courier import Tally
from backend.job.dataset_runner import DatasetRunner
from backend.job.replica_keeper import ReplicaKeeper

RETRIES_OVER_AFTER_S: Final = 60.0  # without a further one


@dataclass(frozen=True, slots=True)
class Condition:
    """One condition as it is now; `Alarms.update` says what the fields mean."""

    kind: str
    subject: str
    problem: str | None
    over: str = ""


def conditions(
    now: float,
    engine: EngineConfig,
    *,
    disk_problem: str | None,
    tally: Tally,
    keepers: Iterable[ReplicaKeeper],
    runners: Iterable[DatasetRunner],
) -> Iterator[Condition]:
    """All of them, those that do not hold included. `now` in epoch seconds."""
    yield Condition("run.admission_stopped", "run", disk_problem, "Requests are sent again.")
    yield Condition("engine.denied", "engine", _denied(engine, tally.denied), "The engine accepts requests again.")
    for keeper in keepers:
        subject = f"engine:{keeper.name}"
        yield Condition("engine.slow", subject, _of(keeper, keeper.throughput_problem) or None, "Throughput has recovered.")
        yield Condition("engine.capped", subject, _capped(keeper), _of(keeper, "no request waits for its cap any more."))
    for runner in runners:
        subject = f"dataset:{runner.name}"
        yield Condition("dataset.retrying", subject, _retrying(runner, now), f"{runner.name}: requests are answered again.")
        yield Condition("dataset.rejects", subject, _rejects(runner))
        yield Condition("dataset.bad_lines", subject, _bad_lines(runner))


def _of(keeper: ReplicaKeeper, words: str | None) -> str:
    return f"Replica {keeper.name}: {words}" if words else ""


def _denied(engine: EngineConfig, words: str | None) -> str | None:
    if words is None:
        return None
    remedy = "Look at its log and at engine.args."
    if engine.urls:
        key = f"the key in {engine.api_key_env}" if engine.api_key_env else "engine.api_key_env (none is set)"
        remedy = f"Correct {key} or engine.urls."
    return f"The engine refuses Headway ({words}): no prompt is to blame and none is booked as rejected. {remedy}"


def _capped(keeper: ReplicaKeeper) -> str | None:
    sample, in_flight = keeper.sample, keeper.in_flight
    if sample is None or sample.max_running_requests is None or in_flight <= sample.max_running_requests:
        return None
    cap = int(sample.max_running_requests)
    return (
        f"Replica {keeper.name} runs at most {cap} requests at once, and {in_flight} are in flight: the others wait in its "
        f"queue. Put --max-running-requests {in_flight} into engine.args (with speculative decoding SGLang takes 48 where it "
        f"is not given), or lower the concurrency to {cap} per replica."
    )


def _retrying(runner: DatasetRunner, now: float) -> str | None:
    if runner.last_retry is None or now - runner.last_retry[0] >= RETRIES_OVER_AFTER_S:
        return None
    return f"{runner.name}: requests fail and are sent again; the last one: {runner.last_retry[1]}"


def _rejects(runner: DatasetRunner) -> str | None:
    if runner.first_rejection is None:
        return None
    return (
        f"{runner.name}: prompts are refused for good and become rows with outcome `rejected`; the first: "
        f"{runner.first_rejection}"
    )


def _bad_lines(runner: DatasetRunner) -> str | None:
    if not runner.bad_lines:
        return None
    one = runner.bad_lines[0]
    return f"{runner.name}: lines without a prompt are passed over; the first: {one.file}:{one.line}: {one.reason}"
