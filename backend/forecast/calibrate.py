"""Makes ranges hold: drawn worlds are too sure of themselves, and how much so is learnt from forecasts whose outcome is known.

The built-in table comes from simulated jobs on other people's length distributions and on steady and unsteady servers; ten or
more finished forecasts of the user's own correct it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from backend.forecast.observation import Floats

Z80: Final = 1.2816  # of a normal distribution's 10 % and 90 %
SIGMA_FLOOR: Final = 0.02
OWN_RESULTS_NEEDED: Final = 10
BUILT_IN_WORTH: Final = 20.0  # own results that the built-in table outweighs
FACTOR_RANGE: Final = (0.5, 4.0)


@dataclass(frozen=True, slots=True)
class Range:
    """An 80 % range, of seconds or tokens."""

    p10: float
    p50: float
    p90: float


@dataclass(frozen=True, slots=True)
class Score:
    """A forecast whose outcome is known: active seconds left then, as forecast and as they came."""

    active_s: float  # at the time of the forecast
    forecast: Range
    actual_s: float

    @property
    def held(self) -> bool:
        """Whether the outcome lay in the range."""
        return self.forecast.p10 <= self.actual_s <= self.forecast.p90

    @property
    def pinball(self) -> float:
        """Mean pinball loss of the three quantiles, relative to the outcome; 0 is perfect."""
        parts = ((0.1, self.forecast.p10), (0.5, self.forecast.p50), (0.9, self.forecast.p90))
        loss = sum(max(q * (self.actual_s - p), (q - 1) * (self.actual_s - p)) for q, p in parts)
        return loss * 2 / 3 / max(self.actual_s, 1e-9)


@dataclass(frozen=True, slots=True)
class Calibration:
    """By progress t / (t + p50): how far the ends lie from the middle, in sigmas of the draws, and how the middle moves."""

    progress: tuple[float, ...]
    lower_z: tuple[float, ...]  # negative
    upper_z: tuple[float, ...]
    middle_log: tuple[float, ...]
    own_results: int = 0  # that corrected it
    lower_factor: float = 1.0
    upper_factor: float = 1.0
    own_middle_log: float = 0.0

    def apply(self, drawn: Range, active_s: float) -> Range:
        """The range that holds 8 times of 10."""
        if drawn.p50 <= 0 or drawn.p10 <= 0:
            return drawn
        sigma = max(math.log(drawn.p90 / drawn.p10) / (2 * Z80), SIGMA_FLOOR)
        at = math.log(max(active_s, 1e-3) / drawn.p50)  # log odds of the progress
        knots = [math.log(p / (1 - p)) for p in self.progress]
        lower, upper, middle_log = (
            float(np.interp(at, knots, values)) for values in (self.lower_z, self.upper_z, self.middle_log)
        )
        middle = drawn.p50 * math.exp(middle_log + self.own_middle_log)
        return Range(
            middle * math.exp(min(lower * self.lower_factor, 0.0) * sigma),
            middle,
            middle * math.exp(max(upper * self.upper_factor, 0.0) * sigma),
        )


def fit(scores: Sequence[Score], progress: Sequence[float]) -> Calibration:
    """The table from drawn, uncalibrated forecasts and their outcomes; `progress` are its knots, ascending within 0..1.

    Each knot looks at the scores about it, nearer ones more. Raises ValueError where a knot has fewer than 20 of them.
    """
    at = np.array([math.log(max(s.active_s, 1e-3) / s.forecast.p50) for s in scores])
    sigma = np.array([max(math.log(s.forecast.p90 / s.forecast.p10) / (2 * Z80), SIGMA_FLOOR) for s in scores])
    error = np.array([math.log(s.actual_s / s.forecast.p50) for s in scores])
    knots = np.array([math.log(p / (1 - p)) for p in progress])
    lower, upper, middle = [], [], []
    for knot in knots:
        weight = np.exp(-0.5 * ((at - knot) / 0.5) ** 2)
        if weight.sum() < 20:
            raise ValueError(f"too few forecasts about progress {1 / (1 + math.exp(-knot)):.3f} to calibrate on")
        middle.append(_quantile(error, weight, 0.5))
        z = (error - middle[-1]) / sigma
        lower.append(min(_quantile(z, weight, 0.1), -0.3))
        upper.append(max(_quantile(z, weight, 0.9), 0.3))
    lower_z, upper_z, middle_log = (tuple(round(x, 3) for x in values) for values in (lower, upper, middle))
    return Calibration(tuple(progress), lower_z, upper_z, middle_log)


def recalibrate(scores: Sequence[Score], base: Calibration | None = None) -> Calibration:
    """`base` (default: the built-in table) corrected by finished forecasts made with it, one for each dataset or run.

    With fewer than ten the base is answered unchanged. Scores of a run that say nearly the same must not be given twice.
    """
    base = base or BUILT_IN
    useful = [s for s in scores if s.actual_s > 0 and 0 < s.forecast.p10 <= s.forecast.p50 <= s.forecast.p90]
    if len(useful) < OWN_RESULTS_NEEDED:
        return base
    n = len(useful)
    trust = n / (n + BUILT_IN_WORTH)
    error = np.array([math.log(s.actual_s / s.forecast.p50) for s in useful])
    middle = trust * float(np.median(error))
    below = np.array([max(math.log(s.forecast.p50 / s.forecast.p10), SIGMA_FLOOR / 2) for s in useful])
    above = np.array([max(math.log(s.forecast.p90 / s.forecast.p50), SIGMA_FLOOR / 2) for s in useful])
    even = np.ones(n)
    # (n + 1) in place of n: with few results the end of the range lies beyond all but one of them, or of all
    far = min(0.9 * (n + 1) / n, 1.0)
    lower = _quantile((middle - error) / below, even, far)
    upper = _quantile((error - middle) / above, even, far)
    return replace(
        base,
        own_results=n,
        lower_factor=base.lower_factor * _limit(1 + trust * (lower - 1)),
        upper_factor=base.upper_factor * _limit(1 + trust * (upper - 1)),
        own_middle_log=base.own_middle_log + middle,
    )


def held_share(scores: Sequence[Score]) -> float | None:
    """Share of the ranges that held, 0..1; None without any."""
    return sum(score.held for score in scores) / len(scores) if scores else None


def _quantile(values: Floats, weights: Floats, share: float) -> float:
    order = np.argsort(values)
    cumulative = np.cumsum(weights[order]) - 0.5 * weights[order]
    return float(np.interp(share * weights.sum(), cumulative, values[order]))


def _limit(factor: float) -> float:
    return min(max(factor, FACTOR_RANGE[0]), FACTOR_RANGE[1])


BUILT_IN: Final = Calibration(
    progress=(0.005, 0.01, 0.02, 0.05, 0.1, 0.25, 0.5, 0.75, 0.9),
    lower_z=(-1.0, -0.95, -1.0, -1.0, -1.05, -1.12, -1.1, -1.2, -0.9),
    upper_z=(1.1, 1.1, 1.25, 1.2, 1.12, 1.2, 1.3, 1.65, 1.45),
    # Fitted over steady and unsteady servers together the middle moved up by 1.5 %, and steady ones, the usual kind, were told
    # too late by 2 to 3 %: the median of the draws stands as it is.
    middle_log=(0.0,) * 9,
)
