"""What the datasets of one run tell of each other: the mean length of a dataset that has not begun, drawn with its range.

The log of a dataset's mean length is normal around a level of the run; how closely datasets keep to it is learnt from those
that have data. Draws go together: one draw is one world, in all datasets.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from backend.forecast.chance import spread_normals, stream
from backend.forecast.lengths import LengthDraws, draw_lengths, family, log_likelihood, log_means
from backend.forecast.observation import DatasetNow, Floats

LEVEL: Final = 6.4  # log tokens, for a cap of LEVEL_CAP: what answers come to before anything is known
LEVEL_CAP: Final = 8192.0
LEVEL_PER_LOG_CAP: Final = 0.75  # who expects long answers allows them
LEVEL_SD: Final = 0.85
SPREADS: Final[Floats] = np.array([0.1, 0.3, 0.65, 1.0])  # sd of the log mean between datasets of one run
SPREAD_WEIGHTS: Final[Floats] = np.array([0.2, 0.2, 0.3, 0.3])


def draw_all(datasets: Sequence[DatasetNow], draws: int, seed: int) -> tuple[LengthDraws, ...]:
    """K distributions of lengths for each dataset, in the order given; those with most data are looked at first."""
    level = _level([dataset.cap_tokens for dataset in datasets if dataset.max_new_tokens is not None])
    order = sorted(range(len(datasets)), key=lambda i: -_known(datasets[i]))
    found: dict[int, LengthDraws] = {}
    logs: list[Floats] = []
    shapes: list[Floats] = []
    for i in order:
        dataset = datasets[i]
        rng = stream(seed, "lengths", dataset.name)
        mean, sd = _draw_outlook(logs, level, draws, stream(seed, "level"))  # the same luck for all
        if _known(dataset):
            chosen, shape = _choose_by_data(dataset, mean, sd, shapes, rng)
            shapes.append(shape)
        else:
            chosen = _choose_unseen(dataset, mean + sd * spread_normals(draws, rng), shapes, rng)
        found[i] = draw_lengths(dataset, chosen, rng)
        if _known(dataset):
            logs.append(np.log(np.maximum(found[i].mean, 0.5)))
    return tuple(found[i] for i in range(len(datasets)))


def _known(dataset: DatasetNow) -> float:
    return dataset.finished_samples + 0.01 * dataset.in_flight.total


def _level(caps: Sequence[float]) -> float:
    typical = float(np.mean(np.log(caps))) if caps else math.log(LEVEL_CAP)
    return LEVEL + LEVEL_PER_LOG_CAP * (typical - math.log(LEVEL_CAP))


def _draw_outlook(logs: Sequence[Floats], level: float, draws: int, rng: Generator) -> tuple[Floats, Floats]:
    """Mean and sd (K each) of the next dataset's log mean, given those of the datasets before it (K each)."""
    if not logs:
        spread = rng.choice(SPREADS, draws, p=SPREAD_WEIGHTS)
        return level + LEVEL_SD * spread_normals(draws, rng), spread
    seen = np.stack(logs, axis=1)
    n, mean = seen.shape[1], seen.mean(axis=1)
    scatter = ((seen - mean[:, None]) ** 2).sum(axis=1)
    variance = SPREADS[None, :] ** 2
    log_weight = (
        np.log(SPREAD_WEIGHTS)[None, :]
        - (n - 1) * np.log(SPREADS)[None, :]
        - scatter[:, None] / (2 * variance)
        - 0.5 * np.log(LEVEL_SD**2 + variance / n)
        - (mean - level)[:, None] ** 2 / (2 * (LEVEL_SD**2 + variance / n))
    )
    weight = np.exp(log_weight - log_weight.max(axis=1, keepdims=True))
    pick = (np.cumsum(weight, axis=1) < rng.random((draws, 1)) * weight.sum(axis=1, keepdims=True)).sum(axis=1)
    spread = SPREADS[pick]
    precision = 1 / LEVEL_SD**2 + n / spread**2
    centre = (level / LEVEL_SD**2 + mean * n / spread**2) / precision
    return centre + rng.standard_normal(draws) / np.sqrt(precision), spread


def _choose_by_data(
    dataset: DatasetNow, mean: Floats, sd: Floats, shapes: Sequence[Floats], rng: Generator
) -> tuple[NDArray[np.intp], Floats]:
    """K members of the family by prior and likelihood, and what is known of the shape then."""
    table = family()
    spread = math.sqrt(float(mean.var() + (sd**2).mean()))
    z = (table.log_mean - float(mean.mean())) / spread
    shape_weight = np.log(_shape_prior(shapes))[table.shape]
    log_weight = log_likelihood(dataset) + shape_weight - 2.5 * np.log1p(z * z / 4)  # t-like: a dataset may be odd
    weight = np.exp(log_weight - log_weight.max())
    weight /= weight.sum()
    shares = (np.arange(len(mean)) + rng.random(len(mean))) / len(mean)
    chosen: NDArray[np.intp] = np.minimum(np.searchsorted(np.cumsum(weight), shares), len(weight) - 1)
    shape: Floats = np.bincount(table.shape, weight, minlength=table.shapes).astype(np.float64)
    return rng.permutation(chosen), shape


def _choose_unseen(dataset: DatasetNow, wanted: Floats, shapes: Sequence[Floats], rng: Generator) -> NDArray[np.intp]:
    """K members of the family with these log means, their shapes like those of the datasets before."""
    table = family()
    shape = rng.choice(table.shapes, len(wanted), p=_shape_prior(shapes))
    by_shape = log_means(dataset.cap_tokens).reshape(-1, table.shapes)  # medians × shapes
    nearest = np.abs(by_shape[:, shape] - wanted[None, :]).argmin(axis=0)
    return np.asarray(nearest * table.shapes + shape, dtype=np.intp)


def _shape_prior(shapes: Sequence[Floats]) -> Floats:
    table = family()
    prior = np.exp(table.log_weight[: table.shapes])
    prior = prior / prior.sum()
    return np.asarray(0.4 * prior + 0.6 * np.mean(shapes, axis=0)) if shapes else np.asarray(prior)
