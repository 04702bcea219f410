"""The answer: when each dataset and the run end, as 80 % ranges, which limit ends them, and what all this assumes."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

import numpy as np

from backend.forecast.calibrate import BUILT_IN, Calibration, Range
from backend.forecast.observation import FINISHING, DatasetNow, Floats, Observation
from backend.forecast.worlds import DatasetWorld, Worlds, draw_worlds
from backend.records import DatasetState

NAIVE_SPEED_S: Final = 300.0
TELLING_RATIO: Final = 8.0  # p90 / p10, beyond which a range tells nothing as long as no sample is finished
NO_SPEED: Final = "no speed is known: nothing was measured in this session, and no sweep tells it"
NO_LENGTHS: Final = "no sample is finished yet, and how long completions are decides when this ends"


@dataclass(frozen=True, slots=True)
class DatasetForecast:
    """One dataset. Seconds are active ones from now; ranges are 80 %."""

    name: str
    state: DatasetState
    begun: bool
    ends_in: Range | None  # None: it does not go on by itself (paused, held, killed, failed), or nothing can be said yet
    budget_binds: float | None  # probability that the token budget ends it, and not its samples; None: nothing to do
    remaining_tokens: Range | None
    total_tokens: Range | None  # finished in the end
    total_samples: Range | None
    mean_tokens: Range | None  # of one completion, those in flight reckoned with
    naive_mean_tokens: float | None  # of the finished ones alone: too short as long as few are finished


@dataclass(frozen=True, slots=True)
class Assumptions:
    """What a forecast rests on, each with its source."""

    concurrency: int
    tokens_per_s: Range  # at this concurrency, in the long run
    speed_source: str  # "measured" (in this session) or "sweep"
    speed_measured_s: float  # of history
    naive_tokens_per_s: float | None  # of the last five minutes
    speed_factor: float  # assumed on top; 1: none
    unsteadiness: float  # movements of the speed over a usual server's
    outages_seen: int
    outages_to_come: float  # expected
    outage_mean_s: float
    down: bool  # the server makes nothing now
    not_begun: tuple[str, ...]  # whose mean length is taken from the other datasets, or from experience
    left_out: tuple[str, ...]  # datasets that do not go on by themselves
    own_results: int  # that the ranges are calibrated on
    later_if_speed_10_percent_lower_s: float | None
    later_if_lengths_10_percent_longer_s: float | None


@dataclass(frozen=True, slots=True)
class Forecast:
    """When the run ends. `remaining` is None where nothing can be said yet; `why_none` says why."""

    remaining: Range | None  # active seconds
    why_none: str | None
    datasets: tuple[DatasetForecast, ...]
    remaining_tokens: Range | None
    total_tokens: Range | None
    assumptions: Assumptions | None


def forecast(observation: Observation, calibration: Calibration | None = None) -> Forecast:
    """The same observation gives the same answer. `calibration`: default is the built-in one."""
    calibration = calibration or BUILT_IN
    worlds = draw_worlds(observation)
    if worlds is None:
        bare = tuple(_without_speed(dataset) for dataset in observation.datasets)
        over = not any(_goes_on(dataset) for dataset in observation.datasets)
        return Forecast(Range(0.0, 0.0, 0.0) if over else None, None if over else NO_SPEED, bare, None, None, None)
    active = [world for world in worlds.datasets if world.work is not None]
    datasets = tuple(
        _dataset(dataset, world, calibration, observation.active_s)
        for dataset, world in zip(observation.datasets, worlds.datasets, strict=True)
    )
    left = _sum([world.work.tokens for world in active if world.work is not None])
    made = sum(d.finished_tokens for d, world in zip(observation.datasets, worlds.datasets, strict=True) if world.work is None)
    total = _sum([world.work.final_tokens for world in active if world.work is not None]) + made
    remaining = calibration.apply(_range(worlds.end_s), observation.active_s) if active else Range(0.0, 0.0, 0.0)
    nothing_finished = all(dataset.finished_samples == 0 for dataset in observation.datasets)
    untold = bool(active) and nothing_finished and remaining.p90 > TELLING_RATIO * remaining.p10
    return Forecast(
        remaining=None if untold else remaining,
        why_none=NO_LENGTHS if untold else None,
        datasets=datasets,
        remaining_tokens=_range(left),
        total_tokens=_range(total),
        assumptions=_assumptions(observation, worlds, remaining, calibration),
    )


def naive(observation: Observation) -> float | None:
    """What simple extrapolation says, in seconds: tokens left by the mean of finished samples, over the speed of five minutes.

    None without a token in that time, or before the first sample is finished.
    """
    speed = naive_speed(observation)
    samples = sum(dataset.finished_samples for dataset in observation.datasets)
    if not speed or not samples:
        return None
    overall = sum(dataset.finished_tokens for dataset in observation.datasets) / samples
    left = 0.0
    for dataset in observation.datasets:
        if not _goes_on(dataset):
            continue
        mean = dataset.finished_tokens / dataset.finished_samples if dataset.finished_samples else overall
        by_samples = (dataset.prompts - dataset.finished_samples) * mean
        by_budget = math.inf if dataset.token_budget is None else dataset.token_budget - dataset.finished_tokens
        left += max(min(by_samples, by_budget), 0.0)
    return left / speed


def naive_speed(observation: Observation) -> float | None:
    """Tokens/s over the last five minutes of the session; None before there is any."""
    history = observation.history
    recent = history.tokens_per_s[-max(round(NAIVE_SPEED_S / history.bin_s), 1) :]
    return float(recent.mean()) if len(recent) else None


def _goes_on(dataset: DatasetNow) -> bool:
    return dataset.state in {DatasetState.RUNNING, DatasetState.WAITING} or (
        dataset.state in FINISHING and dataset.in_flight.total > 0
    )


def _begun(dataset: DatasetNow) -> bool:
    return dataset.finished_samples + dataset.in_flight.total > 0


def _dataset(dataset: DatasetNow, world: DatasetWorld, calibration: Calibration, active_s: float) -> DatasetForecast:
    work = world.work
    over = dataset.state is DatasetState.DONE or (work is None and _goes_on(dataset))
    if work is not None:
        ends_in: Range | None = calibration.apply(_range(world.end_s), active_s)
    else:
        ends_in = Range(0.0, 0.0, 0.0) if over else None
    return DatasetForecast(
        name=dataset.name,
        state=dataset.state,
        begun=_begun(dataset),
        ends_in=ends_in,
        budget_binds=float(work.budget_binds.mean()) if work else None,
        remaining_tokens=_range(work.tokens) if work else Range(0.0, 0.0, 0.0),
        total_tokens=_range(work.final_tokens) if work else _exact(dataset.finished_tokens),
        total_samples=_range(work.final_samples) if work else _exact(dataset.finished_samples),
        mean_tokens=_range(world.lengths.mean),
        naive_mean_tokens=_naive_mean(dataset),
    )


def _without_speed(dataset: DatasetNow) -> DatasetForecast:
    done = dataset.state is DatasetState.DONE
    zero = Range(0.0, 0.0, 0.0) if done else None
    tokens, samples = (_exact(dataset.finished_tokens), _exact(dataset.finished_samples)) if done else (None, None)
    return DatasetForecast(
        dataset.name, dataset.state, _begun(dataset), zero, None, zero, tokens, samples, None, _naive_mean(dataset)
    )


def _naive_mean(dataset: DatasetNow) -> float | None:
    return dataset.finished_tokens / dataset.finished_samples if dataset.finished_samples else None


def _assumptions(observation: Observation, worlds: Worlds, remaining: Range, calibration: Calibration) -> Assumptions:
    outlook, draws = worlds.outlook, worlds.speed
    at_concurrency = float(worlds.curve.at(float(observation.concurrency)))
    speed = at_concurrency * observation.speed_factor * np.exp(outlook.long_run + draws.level_error - draws.settling)
    works = [world.work for world in worlds.datasets if world.work is not None]
    by_samples = _sum([work.tokens * (1 - work.budget_binds) for work in works])
    share = float((by_samples / np.maximum(_sum([work.tokens for work in works]), 1e-9)).mean())
    return Assumptions(
        concurrency=observation.concurrency,
        tokens_per_s=_range(speed),
        speed_source="measured" if outlook.measured_s > 0 else "sweep",
        speed_measured_s=outlook.measured_s,
        naive_tokens_per_s=naive_speed(observation),
        speed_factor=observation.speed_factor,
        unsteadiness=outlook.unsteadiness,
        outages_seen=outlook.outages,
        outages_to_come=float(draws.outages_per_s.mean()) * remaining.p50,
        outage_mean_s=float(draws.outage_mean_s.mean()),
        down=outlook.down,
        not_begun=tuple(dataset.name for dataset in observation.datasets if _goes_on(dataset) and not _begun(dataset)),
        left_out=tuple(d.name for d in observation.datasets if not _goes_on(d) and d.state is not DatasetState.DONE),
        own_results=calibration.own_results,
        later_if_speed_10_percent_lower_s=remaining.p50 * (1 / 0.9 - 1),
        later_if_lengths_10_percent_longer_s=remaining.p50 * 0.1 * share,
    )


def _sum(parts: list[Floats]) -> Floats:
    return np.sum(np.stack(parts), axis=0) if parts else np.zeros(1)


def _range(draws: Floats) -> Range:
    p10, p50, p90 = np.quantile(draws, (0.1, 0.5, 0.9))
    return Range(float(p10), float(p50), float(p90))


def _exact(value: float) -> Range:
    return Range(value, value, value)
