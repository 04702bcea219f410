"""What could go to an API: of each dataset the requests that are not in flight here, drawn by the forecaster of the box.

The same draws of the same lengths serve both sides, so that a comparison differs by its ways and not by its luck.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace

import numpy as np

from backend.forecast.chance import stream
from backend.forecast.curve import SpeedCurve
from backend.forecast.lengths import LengthDraws
from backend.forecast.observation import ADMITTING, FINISHING, DatasetNow, Floats, LengthCounts, Observation
from backend.forecast.work import WorkDraws, work_left
from backend.forecast.worlds import observation_lengths
from backend.records import DatasetState

_ANY_CURVE = SpeedCurve(None)  # what is left to make does not depend on how fast it is made


@dataclass(frozen=True, slots=True, eq=False)  # arrays have no single truth
class Waiting:
    """K draws of what of one dataset is not begun."""

    name: str
    requests: Floats
    tokens: Floats  # completion tokens
    lengths: LengthDraws


def what_waits(observation: Observation) -> tuple[Waiting, ...]:
    """The datasets that go on by themselves and have requests to make, in their order."""
    found = []
    for now, lengths in zip(observation.datasets, observation_lengths(observation), strict=True):
        if now.state not in ADMITTING:
            continue
        rest = _without_those_in_flight(now, lengths, observation)
        work = _work(rest, lengths, observation, "waiting")
        if work is not None:
            requests = np.maximum(work.final_samples - rest.finished_samples, np.minimum(work.tokens, 1.0))
            found.append(Waiting(now.name, requests, work.tokens, lengths))
    return tuple(found)


def moved(observation: Observation, names: Collection[str]) -> Observation:
    """The box's side of it once these datasets have gone: of them only what is in flight finishes here."""
    return replace(
        observation,
        datasets=tuple(
            replace(d, state=DatasetState.DRAINING) if d.name in names and d.state in ADMITTING else d
            for d in observation.datasets
        ),
    )


def as_if_resumed(observation: Observation) -> tuple[Observation, tuple[str, ...]]:
    """Paused datasets as waiting ones, for what is paused in order to go elsewhere is to be compared, too; and their names."""
    paused = tuple(d.name for d in observation.datasets if d.state is DatasetState.PAUSED)
    datasets = tuple(replace(d, state=DatasetState.WAITING) if d.name in paused else d for d in observation.datasets)
    return replace(observation, datasets=datasets), paused


def left_out(observation: Observation) -> tuple[str, ...]:
    """Datasets that are neither done nor go on: killed, held, failed."""
    return tuple(d.name for d in observation.datasets if d.state not in (*ADMITTING, *FINISHING, DatasetState.DONE))


def _without_those_in_flight(now: DatasetNow, lengths: LengthDraws, observation: Observation) -> DatasetNow:
    """The dataset once its requests in flight have finished here."""
    flying = now.in_flight
    if not flying.total:
        return now
    rest = _work(replace(now, state=DatasetState.DRAINING), lengths, observation, "finishing")
    still = float(np.median(rest.tokens)) if rest is not None else 0.0
    prompts = max(now.prompts - round(flying.total), 0)
    return replace(now, prompts=prompts, in_flight=LengthCounts(), more_tokens=now.more_tokens + flying.total_tokens + still)


def _work(now: DatasetNow, lengths: LengthDraws, observation: Observation, purpose: str) -> WorkDraws | None:
    """What a dataset has yet to do, with draws of its own for each purpose."""
    return work_left(
        now,
        lengths,
        curve=_ANY_CURVE,
        concurrency=observation.concurrency,
        stop=observation.budget_stop,
        rng=stream(0, purpose, now.name),
    )
