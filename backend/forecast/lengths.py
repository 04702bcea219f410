"""How long the completions of one dataset are, as draws of whole distributions: what is known, and how far it is not known.

Finished completions count as seen, those in flight as "at least this long": short ones finish first, and the mean of the
finished ones alone is far too short early on. A family of log-normals, some with a share of short ones, of longer ones or of
those that never end by themselves, is weighed by its likelihood; hazards bin by bin, drawn around it, follow the data where
there are data. How datasets of one run resemble each other is `resemblance.py`'s.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cache
from typing import Final

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from backend.forecast.chance import normal_survival
from backend.forecast.observation import BINS, BINS_PER_OCTAVE, EDGES_TOKENS, DatasetNow, Floats

Singles = NDArray[np.float32]

LOG_MEDIANS: Final[Floats] = np.arange(math.log(4), math.log(40_000), 0.14)
LOG_SDS: Final[Floats] = np.array([0.12, 0.22, 0.36, 0.55, 0.8, 1.15, 1.6])
LOG_SD_WEIGHTS: Final[Floats] = np.array([0.4, 0.8, 1.3, 1.5, 1.2, 0.6, 0.3])
LONGER_SHARES: Final[Floats] = np.array([0.0, 0.1, 0.3, 0.0, 0.0])  # of a longer kind: as with and without reasoning
ENDLESS_SHARES: Final[Floats] = np.array([0.0, 0.0, 0.0, 0.05, 0.25])  # of completions that only the cap ends: loops
TAIL_WEIGHTS: Final[Floats] = np.array([0.55, 0.22, 0.13, 0.06, 0.04])
LONGER_FACTOR: Final = 5.0  # its median over the other's
LONGER_LOG_SD: Final = 0.9
SHORT_SHARES: Final[Floats] = np.array([0.01, 0.12, 0.35, 0.8])  # of a kind that ends early: refusals, one word, no reasoning
SHORT_WEIGHTS: Final[Floats] = np.array([0.55, 0.25, 0.12, 0.08])
SHORT_BINS: Final = 5 * BINS_PER_OCTAVE  # up to 30 tokens: how many are so short counts, not how they lie there
BASE_WEIGHT: Final = 30.0  # in samples: how much the fitted family weighs against the counts of a bin
COARSENESS: Final = 40.0  # in samples: as no family is exactly right, more data than this choose no more sharply
LOG_EDGES: Final[Floats] = np.arange(BINS + 1) / BINS_PER_OCTAVE * math.log(2)  # log(tokens + 1)
TYPICAL_TOKENS: Final[Floats] = np.sqrt((EDGES_TOKENS[:-1] + 1) * (EDGES_TOKENS[1:] + 1)) - 1


@dataclass(frozen=True, slots=True)
class Family:
    """The distributions that are weighed: E of them, by bin. `shape` numbers what is not the median: (sd, tail, short ones)."""

    log_mass: Singles  # BINS × E, the short ones (SHORT_BINS) taken together
    log_survival: Singles  # BINS + 1 × E, at the edges
    log_survival_inside: Singles  # BINS × E, in the middle of a bin
    mass: Floats
    survival: Floats
    log_weight: Floats  # E, prior of the shape
    log_mean: Floats  # E, of those that end by themselves, without a cap
    shape: NDArray[np.intp]  # E
    shapes: int


@dataclass(frozen=True, slots=True)
class LengthDraws:
    """K draws of one dataset's distribution of lengths."""

    cap_tokens: float
    survival: Floats  # K × (BINS + 1): share of completions longer than edge k, 0 from the cap on
    end_chance: Floats  # K × BINS: share of those that end in bin k
    mean_beyond: Floats  # K × (BINS + 1): mean length of completions that come to edge k
    square_beyond: Floats  # K × (BINS + 1): mean squared length of them

    @property
    def mean(self) -> Floats:
        """K mean lengths."""
        return self.mean_beyond[:, 0]

    @property
    def square(self) -> Floats:
        """K mean squared lengths."""
        return self.square_beyond[:, 0]


@cache
def family() -> Family:
    """The table, computed once."""
    axes = (LOG_MEDIANS, np.arange(len(LOG_SDS)), np.arange(len(TAIL_WEIGHTS)), np.arange(len(SHORT_SHARES)))
    grids = np.meshgrid(*axes, indexing="ij")
    median: Floats = grids[0].ravel().astype(np.float64)
    sd_at, tail_at, short_at = (grid.ravel().astype(np.intp) for grid in grids[1:])
    z: Floats = (LOG_EDGES[None, :] - median[:, None]) / LOG_SDS[sd_at][:, None]
    ending = normal_survival(z)
    ending /= ending[:, :1]
    longer = normal_survival((LOG_EDGES[None, :] - median[:, None] - math.log(LONGER_FACTOR)) / LONGER_LOG_SD)
    longer /= longer[:, :1]
    few = np.maximum(1 - LOG_EDGES / LOG_EDGES[SHORT_BINS], 0.0)
    below = np.maximum(1 - LOG_EDGES[None, :] / median[:, None], 0.0)  # evenly over the logs
    short = np.where((SHORT_SHARES[short_at] > 0.2)[:, None], few, below)
    share = SHORT_SHARES[short_at][:, None]
    to_longer, to_endless = LONGER_SHARES[tail_at][:, None], ENDLESS_SHARES[tail_at][:, None]
    survival = share * short + (1 - share) * ((1 - to_longer - to_endless) * ending + to_longer * longer + to_endless)
    mass = np.maximum(-np.diff(survival, axis=1), 0.0)
    coarse = mass.copy()
    coarse[:, :SHORT_BINS] = (mass[:, :SHORT_BINS].sum(axis=1) / SHORT_BINS)[:, None]
    inside = (survival[:, :-1] + survival[:, 1:]) / 2
    weight = LOG_SD_WEIGHTS[sd_at] * TAIL_WEIGHTS[tail_at] * SHORT_WEIGHTS[short_at]
    shapes = len(LOG_SDS) * len(TAIL_WEIGHTS) * len(SHORT_SHARES)
    return Family(
        log_mass=_logs(coarse),
        log_survival=_logs(survival),
        log_survival_inside=_logs(inside),
        mass=mass,
        survival=np.maximum(survival, 1e-12),
        log_weight=np.log(weight / weight.sum()),
        log_mean=median
        + np.minimum(LOG_SDS[sd_at], 1.2) ** 2 / 2
        + np.log(1 - 0.8 * SHORT_SHARES[short_at])
        + np.log1p(4 * LONGER_SHARES[tail_at]),
        shape=np.arange(len(median), dtype=np.intp) % shapes,
        shapes=shapes,
    )


@cache
def log_means(cap_tokens: float) -> Floats:
    """log of the mean length of each of the family, completions cut at the cap."""
    lows, highs = np.minimum(EDGES_TOKENS[:-1], cap_tokens), np.minimum(EDGES_TOKENS[1:], cap_tokens)
    table = family().survival
    return np.asarray(np.log(np.maximum((table[:, :-1] + table[:, 1:]) / 2 @ (highs - lows), 0.5)))


def log_likelihood(dataset: DatasetNow) -> Floats:
    """Of the data under each of the family: finished ones seen, those in flight and at the cap longer than they are now."""
    table = family()
    finished, running = dataset.finished.counts, dataset.in_flight.counts
    seen, there = np.flatnonzero(finished), np.flatnonzero(running)
    result = finished[seen].astype(np.float32) @ table.log_mass[seen]
    result += running[there].astype(np.float32) @ table.log_survival_inside[there]
    if dataset.finished_at_cap:
        result += dataset.finished_at_cap * table.log_survival[_cap_bin(dataset.cap_tokens)]
    return result.astype(np.float64) * (COARSENESS / (COARSENESS + dataset.finished_samples + dataset.in_flight.total))


def draw_lengths(dataset: DatasetNow, chosen: NDArray[np.intp], rng: Generator) -> LengthDraws:
    """K distributions: around `chosen` (K members of the family), corrected by the counts of each bin."""
    table = family()
    cap = dataset.cap_tokens
    bins = _cap_bin(cap) + 1  # the last of them holds the cap
    finished, running = dataset.finished.counts[:bins], dataset.in_flight.counts[:bins]
    base_survival, base_mass = table.survival[chosen, :bins], table.mass[chosen, :bins]
    if dataset.finished_samples or running.any():
        ended_or_beyond = finished + running
        reached = np.cumsum(ended_or_beyond[::-1])[::-1] + dataset.finished_at_cap - running / 2
        lived_on = np.maximum(reached - finished, 0.0)
        low = rng.standard_gamma(np.maximum(BASE_WEIGHT * base_mass + finished, 1e-9))
        high = rng.standard_gamma(np.maximum(BASE_WEIGHT * (base_survival - base_mass) + lived_on, 1e-9))
        end_chance = low / np.maximum(low + high, 1e-300)
    else:
        end_chance = np.clip(base_mass / base_survival, 0.0, 1.0)
    counted = np.maximum(finished, 1.0)
    point = np.where(finished > 0, dataset.finished.tokens[:bins] / counted, TYPICAL_TOKENS[:bins])
    return _distributions(end_chance, np.minimum(point, cap), cap)


def _distributions(end_chance: Floats, point: Floats, cap: float) -> LengthDraws:
    draws, bins = end_chance.shape
    survival = np.zeros((draws, BINS + 1))
    survival[:, 0] = 1.0
    np.cumprod(1.0 - end_chance, axis=1, out=survival[:, 1 : bins + 1])
    mass = survival[:, :bins] * end_chance
    at_cap = survival[:, bins]
    mean_beyond, square_beyond = np.full((draws, BINS + 1), cap), np.full((draws, BINS + 1), cap * cap)
    for power, out in ((1, mean_beyond), (2, square_beyond)):
        worth = mass * point[None, :] ** power
        beyond = np.cumsum(worth[:, ::-1], axis=1)[:, ::-1] + (at_cap * cap**power)[:, None]
        known = survival[:, :bins] > 1e-9
        np.divide(beyond, survival[:, :bins], out=out[:, :bins], where=known)
    floor = np.minimum(EDGES_TOKENS, cap)
    np.clip(mean_beyond, floor, cap, out=mean_beyond)
    np.maximum(square_beyond, mean_beyond**2, out=square_beyond)
    survival[:, bins:] = 0.0
    chance = np.zeros((draws, BINS))
    chance[:, :bins] = end_chance
    return LengthDraws(cap, survival, chance, mean_beyond, square_beyond)


def _logs(shares: Floats) -> Singles:
    """By bin, so that the bins that hold something are read in one piece."""
    return np.ascontiguousarray(np.log(np.maximum(shares, 1e-9)).T.astype(np.float32))


def _cap_bin(cap_tokens: float) -> int:
    return min(int(np.searchsorted(EDGES_TOKENS, cap_tokens, side="left")), BINS) - 1
