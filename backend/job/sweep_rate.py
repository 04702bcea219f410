"""PURE: how fast token counters grow, and how well that is known: the mean of a stretch of time with its 95 % interval.

Tokens of neighbouring seconds are not independent (prefills, publication in lumps, a machine that slows down), so single
seconds would promise too much. The stretch is cut into a few long batches (the method of batch means: Law, Simulation Modeling
and Analysis, chapter 9), in several ways; each interval is widened by what neighbouring batches still have in common, and the
widest one counts. What moves more slowly than the whole stretch cannot be seen in it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

# How many batches → Student's t for 95 %, both sides, with one degree of freedom less.
BATCHES: Final = {8: 2.365, 16: 2.131, 32: 2.040}
MOST_ALIKE: Final = 0.8  # correlation of neighbouring batches that is reckoned with: beyond, a longer stretch must tell
STALE_S: Final = 0.5  # a look that shows the same count after less than this is the same publication, seen twice


@dataclass(frozen=True, slots=True)
class Rate:
    """Tokens a second over a stretch of time. `half_width` (tokens/s, 95 %) is None where there are too few looks."""

    tokens_per_s: float
    half_width: float | None
    measured_s: float

    def is_known_within(self, share: float) -> bool:
        """Whether the interval reaches no further than this share of the rate, to either side."""
        return self.half_width is not None and self.tokens_per_s > 0 and self.half_width <= share * self.tokens_per_s


class CounterMeter:
    """Looks at the counters of some replicas, from one moment on."""

    def __init__(self, replicas: Iterable[str]) -> None:
        """`replicas`: those that together make the rate; each has its own times of publication."""
        self._looks: dict[str, list[tuple[float, float]]] = {name: [] for name in replicas}

    def add(self, replica: str, at_s: float, tokens: float, *, held: bool = False) -> None:
        """Counter `tokens` as it was at `at_s` (seconds, any clock that all share). An older look is passed over.

        `held`: a count that has not changed may be an old one, and says nothing.
        """
        looks = self._looks[replica]
        if looks:
            seconds = at_s - looks[-1][0]
            if seconds <= 0 or (tokens == looks[-1][1] and (held or seconds < STALE_S)):
                return
        looks.append((at_s, tokens))

    def rate(self) -> Rate | None:
        """Over the time that is known of every replica; None before there is any."""
        if not self._looks or any(len(looks) < 2 for looks in self._looks.values()):
            return None
        start = max(looks[0][0] for looks in self._looks.values())
        end = min(looks[-1][0] for looks in self._looks.values())
        if end <= start:
            return None
        most = min(len(looks) for looks in self._looks.values()) - 1  # finer batches than looks would seem too steady
        widths = [self._half_width(start, end, batches) for batches in BATCHES if batches <= most]
        tokens = self._tokens(np.array([start, end]))
        return Rate(float((tokens[1] - tokens[0]) / (end - start)), max(widths, default=None), end - start)

    def _half_width(self, start: float, end: float, batches: int) -> float:
        edges = np.linspace(start, end, batches + 1)
        off = np.diff(self._tokens(edges)) / np.diff(edges)
        off -= off.mean()
        square = float(off @ off)
        if square == 0:
            return 0.0
        # the estimate from so few batches is too low by about 1 / batches
        alike = min(max(float(off[1:] @ off[:-1]) / square + 1 / batches, 0.0), MOST_ALIKE)
        sd = np.sqrt(square / (batches - 1) / batches * (1 + alike) / (1 - alike))
        return float(BATCHES[batches] * sd)

    def _tokens(self, at_s: Floats) -> Floats:
        """Of all replicas together at these times, straight between looks."""
        total = np.zeros(len(at_s))
        for looks in self._looks.values():
            times, counts = np.array(looks).T
            total += np.interp(at_s, times, counts)
        return total
