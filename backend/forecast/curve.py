"""Tokens a second by the number of requests running: the shape that a sweep found, and where more requests stop to pay."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

import numpy as np

from backend.forecast.observation import Floats

UNKNOWN_EXPONENT: Final = 0.6  # without a sweep: twice the requests make half as many tokens again
KNEE_SHARE: Final = 0.9  # of the best level's speed


class SpeedCurve:
    """T(n), with straight lines between the levels of a sweep; without one, a shape only: 1 at one request."""

    def __init__(self, levels: Iterable[tuple[float, float]] | None) -> None:
        """`levels`: (requests running, tokens/s), in any order; None: unknown."""
        points = sorted({float(n): float(speed) for n, speed in levels or () if n > 0 and speed > 0}.items())
        self.known = bool(points)
        self._n = np.array([0.0, *(n for n, _ in points)])
        self._speed = np.array([0.0, *(speed for _, speed in points)])

    def at(self, running: Floats | float) -> Floats:
        """Tokens/s with so many requests running; beyond the last level as on it."""
        n = np.asarray(running, dtype=np.float64)
        return np.interp(n, self._n, self._speed) if self.known else np.maximum(n, 0.0) ** UNKNOWN_EXPONENT

    def seconds_per_token(self, expected: Floats) -> Floats:
        """E[n / T(n)], n Poisson with these means: seconds in which each request running makes one token."""
        few = np.linspace(0.0, FEW, len(_FEW_SHARES))
        counts = np.arange(1, _FEW_SHARES.shape[1] + 1)
        table = _FEW_SHARES @ (counts / self.at(counts.astype(np.float64)))
        many = np.maximum(expected, 1.0)
        return np.where(expected < FEW, np.interp(expected, few, table), many / self.at(many))


FEW: Final = 12.0


def _poisson_shares() -> Floats:
    """Rows: means 0 to FEW in steps of 0.1; columns: P(n) for n = 1, 2, ..."""
    means = np.linspace(0.0, FEW, 121)
    shares = np.empty((len(means), 40))
    at = np.exp(-means)
    for n in range(1, 41):
        at = at * means / n
        shares[:, n - 1] = at
    return shares


_FEW_SHARES: Final = _poisson_shares()


def knee(levels: Sequence[tuple[int, float]]) -> int | None:
    """The smallest level of a sweep [(requests, tokens/s)] within 10 % of the best one's speed; None for an empty sweep."""
    best = max((speed for _, speed in levels), default=0.0)
    return min((n for n, speed in levels if speed >= KNEE_SHARE * best), default=None) if best > 0 else None
