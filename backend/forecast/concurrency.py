"""Which concurrency ends a run soonest: the levels of a sweep, and what lies between, each as a forecast of this very run.

More requests make more tokens a second, up to the knee much more and beyond it little; but the last ones run out alone, and
their contexts must fit into the KV pool. Pure; nothing is carried out here.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Final

from backend.forecast.calibrate import Calibration, Range
from backend.forecast.curve import SpeedCurve, knee
from backend.forecast.forecast import forecast
from backend.forecast.observation import Observation
from backend.forecast.what_if import with_concurrency
from backend.forecast.worlds import observation_lengths

SAME_SHARE: Final = 0.005  # of the soonest end: what is no later than that is as good, and fewer requests are kinder to memory

Points = Sequence[tuple[float, float]]


@dataclass(frozen=True, slots=True)
class KvRoom:
    """The KV pools of all replicas together."""

    capacity_tokens: float
    prompt_tokens: float  # of a request, on average


@dataclass(frozen=True, slots=True)
class ConcurrencyOption:
    """When the run would end with so many requests in flight from now on. Seconds are active ones."""

    concurrency: int
    remaining: Range
    tokens_per_s: float  # by the curve, as far as the pool holds that many


@dataclass(frozen=True, slots=True)
class Recommendation:
    """The option that ends soonest, among all that were reckoned."""

    concurrency: int
    options: tuple[ConcurrencyOption, ...]  # by concurrency, ascending; the present one is among them
    fits: int | None  # how many requests of average length the KV pools hold; None: not known


def recommend(
    observation: Observation, points: Points, *, kv: KvRoom | None = None, calibration: Calibration | None = None
) -> Recommendation | None:
    """The smallest concurrency whose forecast ends within half a percent of the soonest; None where nothing can be said yet, or
    nothing is left to do.

    `points`: [(requests running, tokens/s)] of a sweep. Reckoned are its levels from the knee on, the middle between each two
    of them, and the present concurrency.
    """
    levels = sorted((max(round(n), 1), speed) for n, speed in points)
    bottom = knee(levels)
    if bottom is None:
        return None
    fits = None if kv is None else requests_that_fit(observation, kv)
    usable = within_room(points, fits)
    curve = SpeedCurve(usable)
    seen = replace(observation, speed_curve=tuple(usable))
    upper = [n for n, _ in levels if n >= bottom]
    middles = [round(math.sqrt(a * b)) for a, b in pairwise(upper)]
    options = []
    for concurrency in sorted({*upper, *middles, observation.concurrency}):
        remaining = forecast(with_concurrency(seen, concurrency), calibration).remaining
        if remaining is None:
            return None
        options.append(ConcurrencyOption(concurrency, remaining, float(curve.at(float(concurrency)))))
    soonest = min(option.remaining.p50 for option in options)
    if soonest <= 0:
        return None
    best = next(option for option in options if option.remaining.p50 <= soonest * (1 + SAME_SHARE))
    return Recommendation(best.concurrency, tuple(options), fits)


def requests_that_fit(observation: Observation, kv: KvRoom) -> int:
    """How many requests the pools hold once a run is in its stride; at least one.

    A request seen at any moment is of a longer kind than the mean and half done: it has made E[L²] / 2 E[L] tokens on average
    (the inspection paradox of renewal theory).
    """
    lengths = observation_lengths(observation)
    weights = [max(dataset.prompts - dataset.finished_samples, 0.0) for dataset in observation.datasets]
    ages = [float((each.square / (2 * each.mean)).mean()) for each in lengths]
    total = sum(weights)
    age = sum(w * a for w, a in zip(weights, ages, strict=True)) / total if total > 0 else max(ages, default=0.0)
    return max(int(kv.capacity_tokens / max(kv.prompt_tokens + age, 1.0)), 1)


def within_room(points: Points, fits: int | None) -> list[tuple[float, float]]:
    """The curve up to the requests that fit: what is admitted beyond waits in the server's queue and makes nothing."""
    if fits is None or all(n <= fits for n, _ in points):
        return list(points)
    at_most = float(SpeedCurve(points).at(float(fits)))
    return [*((n, speed) for n, speed in points if n < fits), (float(fits), at_most)]
