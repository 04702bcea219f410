"""Observations as they would be: fewer samples, another budget, cap, concurrency or number of replicas, other datasets.

Each answers a new observation, to be forecast beside the old one; the luck of the draws is the same in both. Nothing is carried
out here.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace

import numpy as np

from backend.forecast.curve import UNKNOWN_EXPONENT
from backend.forecast.lengths import LengthDraws
from backend.forecast.observation import EDGES_TOKENS, DatasetNow, LengthCounts, Observation
from backend.forecast.worlds import observation_lengths
from backend.records import DatasetState


@dataclass(frozen=True, slots=True)
class CapEffect:
    """What a cap on completions would do to one dataset's completions."""

    dataset: str
    mean_tokens: float  # with the cap, expected
    mean_tokens_now: float
    truncated_share: float  # of completions that would come to the cap, 0..1
    truncated_share_now: float


def with_samples(observation: Observation, samples: int, dataset: str | None = None) -> Observation:
    """At most so many samples of one dataset, or of each; what is finished or in flight already stays."""

    def limit(now: DatasetNow) -> DatasetNow:
        least = int(now.finished_samples + now.in_flight.total)
        return replace(now, prompts=min(now.prompts, max(samples, least)))

    return _change(observation, limit, dataset)


def with_budget(observation: Observation, token_budget: int | None, dataset: str | None = None) -> Observation:
    """This token budget for one dataset, or for each; None: unlimited."""
    return _change(observation, lambda now: replace(now, token_budget=token_budget), dataset)


def with_cap(observation: Observation, max_new_tokens: int, dataset: str | None = None) -> Observation:
    """A lower cap for requests to come. Finished samples keep their tokens. Raises ValueError for a cap below 1."""
    if max_new_tokens < 1:
        raise ValueError(f"a cap must be at least 1 token, not {max_new_tokens}")

    def cut(now: DatasetNow) -> DatasetNow:
        if max_new_tokens >= now.cap_tokens:
            return now
        inside = EDGES_TOKENS[1:] <= max_new_tokens
        finished = LengthCounts(np.where(inside, now.finished.counts, 0.0), np.where(inside, now.finished.tokens, 0.0))
        at_cap = now.finished_at_cap + round(now.finished.total - finished.total)
        counts = np.minimum(now.in_flight.tokens, max_new_tokens * now.in_flight.counts)
        running = LengthCounts(now.in_flight.counts, counts)
        more = now.finished_tokens - finished.total_tokens - at_cap * max_new_tokens
        return replace(
            now, max_new_tokens=max_new_tokens, finished=finished, finished_at_cap=at_cap, in_flight=running, more_tokens=more
        )

    return _change(observation, cut, dataset)


def effects_of_caps(observation: Observation, caps: Sequence[int]) -> tuple[tuple[CapEffect, ...], ...]:
    """What each of these caps would do to each dataset, from its distribution as far as it is known."""
    lengths = observation_lengths(observation)
    return tuple(
        tuple(_effect(now, drawn, cap) for now, drawn in zip(observation.datasets, lengths, strict=True)) for cap in caps
    )


def _effect(now: DatasetNow, lengths: LengthDraws, max_new_tokens: int) -> CapEffect:
    cap = min(float(max_new_tokens), now.cap_tokens)
    survival = lengths.survival.mean(axis=0)
    lows, highs = np.minimum(EDGES_TOKENS[:-1], cap), np.minimum(EDGES_TOKENS[1:], cap)
    reach = float(np.interp(cap, EDGES_TOKENS, survival))
    last = int(np.searchsorted(EDGES_TOKENS, now.cap_tokens, side="left")) - 1  # the bin that holds the cap of now
    now_share = float((survival[last] * (1 - lengths.end_chance[:, last].mean())) if 0 <= last < len(survival) - 1 else 0.0)
    mean = float(((survival[:-1] + survival[1:]) / 2) @ (highs - lows))
    share = now_share if cap >= now.cap_tokens else max(reach, now_share)
    mean_now = float(lengths.mean.mean())
    return CapEffect(now.name, min(mean, mean_now), mean_now, share, now_share)


def with_concurrency(observation: Observation, concurrency: int) -> Observation:
    """So many requests in flight from now on. Raises ValueError below 1."""
    if concurrency < 1:
        raise ValueError(f"concurrency must be at least 1, not {concurrency}")
    return replace(observation, concurrency=concurrency)


def with_replicas(observation: Observation, now: int, then: int, efficiency: float = 1.0) -> Observation:
    """`then` replicas in place of `now`, each with as many requests as before; `efficiency`: the share of the gain that comes.

    1: twice the replicas are twice as fast; 0: they are no faster. Raises ValueError for fewer than one replica.
    """
    if now < 1 or then < 1:
        raise ValueError(f"replicas must be at least 1, not {min(now, then)}")
    ratio = then / now
    gain = 1 + (ratio - 1) * efficiency
    concurrency = max(round(observation.concurrency * ratio), 1)
    curve = observation.later_curve or observation.speed_curve
    if curve is None:
        factor = observation.speed_factor * gain / (concurrency / observation.concurrency) ** UNKNOWN_EXPONENT
        return replace(observation, concurrency=concurrency, speed_factor=factor)
    later = tuple((n * ratio, speed * gain) for n, speed in curve)
    return replace(observation, concurrency=concurrency, later_curve=later)


def without(observation: Observation, names: Collection[str]) -> Observation:
    """These datasets killed: what is finished stays, nothing more is made. Raises ValueError for an unknown name."""
    _known(observation, names)
    datasets = tuple(replace(d, state=DatasetState.KILLED) if d.name in names else d for d in observation.datasets)
    return replace(observation, datasets=datasets)


def in_order(observation: Observation, names: Sequence[str]) -> Observation:
    """These datasets first, in this order; the others after them as before. Raises ValueError for an unknown name."""
    _known(observation, names)
    place = {name: i for i, name in enumerate(names)}
    datasets = tuple(sorted(observation.datasets, key=lambda d: place.get(d.name, len(place))))
    return replace(observation, datasets=datasets)


def _change(observation: Observation, change: Callable[[DatasetNow], DatasetNow], dataset: str | None) -> Observation:
    if dataset is not None:
        _known(observation, [dataset])
    datasets = tuple(change(d) if dataset in (None, d.name) else d for d in observation.datasets)
    return replace(observation, datasets=datasets)


def _known(observation: Observation, names: Collection[str]) -> None:
    there = [dataset.name for dataset in observation.datasets]
    for name in names:
        if name not in there:
            raise ValueError(f"there is no dataset {name!r}; there are {', '.join(there)}")
