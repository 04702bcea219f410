"""Finished tokens from now to the end, as a band: what a fan chart draws. The worlds are those of the forecast itself."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

import numpy as np

from backend.forecast.calibrate import BUILT_IN, Calibration, Range
from backend.forecast.observation import Floats, Observation
from backend.forecast.worlds import draw_worlds

STEPS: Final = 48  # points of a band
BEYOND: Final = 1.02  # how far past the late end of the range a band reaches


@dataclass(frozen=True, slots=True)
class Paths:
    """Quantiles of the tokens finished (of the whole run) at each of `after_s`, active seconds from now on."""

    after_s: tuple[float, ...]
    p10: tuple[float, ...]
    p50: tuple[float, ...]
    p90: tuple[float, ...]


def paths(observation: Observation, calibration: Calibration | None = None) -> Paths | None:
    """None where no speed is known or nothing is left to do. In each world tokens are finished evenly until its end.

    The ends are moved apart as the calibration moves those of the range, each to the side on which it lies.
    """
    worlds = draw_worlds(observation)
    works = [] if worlds is None else [world.work for world in worlds.datasets if world.work is not None]
    if worlds is None or not works:
        return None
    finished = sum(dataset.finished_tokens for dataset in observation.datasets)
    over = sum(d.finished_tokens for d, world in zip(observation.datasets, worlds.datasets, strict=True) if world.work is None)
    totals = np.maximum(np.sum(np.stack([work.final_tokens for work in works]), axis=0) + over, finished)
    ends = _calibrated(worlds.end_s, calibration or BUILT_IN, observation.active_s)
    after = np.linspace(0.0, float(np.quantile(ends, 0.9)) * BEYOND, STEPS)
    share = np.minimum(after[:, None] / np.maximum(ends[None, :], 1e-9), 1.0)
    low, middle, high = np.quantile(finished + (totals - finished)[None, :] * share, (0.1, 0.5, 0.9), axis=1)
    return Paths(tuple(after.tolist()), tuple(low.tolist()), tuple(middle.tolist()), tuple(high.tolist()))


def _calibrated(ends: Floats, calibration: Calibration, active_s: float) -> Floats:
    p10, p50, p90 = (max(float(q), 1e-9) for q in np.quantile(ends, (0.1, 0.5, 0.9)))
    told = calibration.apply(Range(p10, p50, p90), active_s)
    lower, upper = _stretch(told.p10, told.p50, p10, p50), _stretch(told.p90, told.p50, p90, p50)
    off = np.log(np.maximum(ends, 1e-9) / p50)
    return np.asarray(told.p50 * np.exp(np.where(off < 0, off * lower, off * upper)))


def _stretch(told_end: float, told_middle: float, end: float, middle: float) -> float:
    drawn = math.log(end / middle)
    return math.log(told_end / told_middle) / drawn if abs(drawn) > 1e-9 else 1.0
