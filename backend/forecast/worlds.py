"""K futures of a run, drawn: when each dataset ends, what is made by then, and which limit stops it. Not yet calibrated.

A draw is one world: lengths, speed, outages and drains belong together in it, so that what datasets share is not averaged away.
"""

from __future__ import annotations

from dataclasses import dataclass
from hashlib import blake2b
from typing import Final

import numpy as np

from backend.forecast.chance import stream
from backend.forecast.curve import SpeedCurve
from backend.forecast.lengths import LengthDraws
from backend.forecast.observation import Floats, Observation
from backend.forecast.resemblance import draw_all
from backend.forecast.speed import SpeedDraws, SpeedOutlook, draw_speed, look_at
from backend.forecast.work import WorkDraws, work_left

DRAWS: Final = 200
CONTEXT_SLOWDOWN: Final = (0.0, 0.3)  # how much slower decoding is with 10,000 tokens more in each request's context
CONTEXT_TOKENS: Final = 10_000.0
LONGEST_NOISE: Final = 0.15  # log sd of the last request's time: one request, not an average


@dataclass(frozen=True, slots=True)
class DatasetWorld:
    """K draws for one dataset."""

    lengths: LengthDraws
    work: WorkDraws | None  # None: nothing to do
    end_s: Floats  # active seconds from now


@dataclass(frozen=True, slots=True)
class Worlds:
    """K draws of everything."""

    datasets: tuple[DatasetWorld, ...]
    end_s: Floats
    outlook: SpeedOutlook
    speed: SpeedDraws
    curve: SpeedCurve  # that holds from now on


def draw_worlds(observation: Observation) -> Worlds | None:
    """None where no speed is known yet. The same observation gives the same draws."""
    seed = _seed(observation)
    rng = stream(seed, "run")
    curve = SpeedCurve(observation.speed_curve)
    outlook = look_at(observation.history, curve, observation.concurrency)
    if outlook is None:
        return None
    later = curve if observation.later_curve is None else SpeedCurve(observation.later_curve)
    lengths = draw_all(observation.datasets, DRAWS, seed)
    speed = draw_speed(outlook, observation.speed_factor, DRAWS, rng)
    works = [
        work_left(
            dataset,
            drawn,
            curve=later,
            concurrency=observation.concurrency,
            stop=observation.budget_stop,
            rng=stream(seed, "work", dataset.name),
        )
        for dataset, drawn in zip(observation.datasets, lengths, strict=True)
    ]
    slower = rng.uniform(*CONTEXT_SLOWDOWN, DRAWS)
    measured_age = _measured_age(observation, works)
    tokens_per_slot_s = float(later.at(float(observation.concurrency))) / observation.concurrency
    so_far, ends = np.zeros(DRAWS), []
    last_active = max((i for i, work in enumerate(works) if work is not None), default=-1)
    longest_normals = rng.standard_normal((DRAWS, len(works)))
    for i, work in enumerate(works):
        if work is None:
            ends.append(np.zeros(DRAWS))
            continue
        full_rate = float(later.at(work.slots))
        context = _context(slower, work.mean_age, measured_age)
        longest = np.exp(LONGEST_NOISE * longest_normals[:, i])
        lost_s = work.slots * work.mean_age / full_rate
        if observation.overlap and i != last_active:
            alone_s = work.last_tokens * longest * context / tokens_per_slot_s
            admitted = so_far + work.full_tokens / full_rate * context
            end = admitted + alone_s
            so_far = so_far + work.tokens / full_rate * context
        else:
            so_far = so_far + (work.full_tokens / full_rate + work.drain_s * longest) * context
            end = so_far
        ends.append(speed.seconds_for(end, lost_s))
    datasets = tuple(DatasetWorld(*parts) for parts in zip(lengths, works, ends, strict=True))
    return Worlds(datasets, np.max(np.stack(ends), axis=0) if ends else np.zeros(DRAWS), outlook, speed, later)


def observation_lengths(observation: Observation) -> tuple[LengthDraws, ...]:
    """The distributions of lengths alone, the same as in `draw_worlds`."""
    return draw_all(observation.datasets, DRAWS, _seed(observation))


def _context(slower: Floats, age: Floats, measured_age: Floats | None) -> Floats:
    if measured_age is None:
        return np.ones(len(slower))
    return (1 + slower * age / CONTEXT_TOKENS) / (1 + slower * measured_age / CONTEXT_TOKENS)


def _measured_age(observation: Observation, works: list[WorkDraws | None]) -> Floats | None:
    """Mean tokens in a request's context (K) while the speed was measured: few as long as all requests are young."""
    for dataset, work in zip(observation.datasets, works, strict=True):
        running = dataset.in_flight.total
        if work is not None and running > 0:
            young = 0.6 * dataset.in_flight.total_tokens / running
            turned_over = min(dataset.finished_samples / (3 * running), 1.0)
            return np.asarray(young + turned_over * (work.mean_age - young))
    return None


def _seed(observation: Observation) -> int:
    """From what was measured, not from what is wanted: what-ifs differ in their assumptions, not in their luck."""
    digest = blake2b(digest_size=8)
    digest.update(repr((observation.active_s, len(observation.history.tokens_per_s))).encode())
    digest.update(repr(sorted((d.name, d.finished_samples, d.in_flight.total_tokens) for d in observation.datasets)).encode())
    return int.from_bytes(digest.digest(), "big")
