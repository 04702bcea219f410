"""Whether the mean length of a dataset's answers lies outside its limits, asked after every sample.

Lengths come in the order of start and only as far as every sample before is finished: short ones finish first, and a mean over
those would be too small. The interval around the mean is an asymptotic confidence sequence (Waudby-Smith, Arbour, Sinha,
Kennedy and Ramdas, "Time-uniform central limit theory and asymptotic confidence sequences", 2021, theorem 2.2), which holds at
every moment at once. After BLOCK samples a new one begins, so that a dataset whose lengths drift is seen.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

LEAST: Final = 12  # lengths, before anything is said
BLOCK: Final = 2_000
CHANCE_FIRST: Final = 0.005  # of a false alarm, in the first block
CHANCE_LATER: Final = 0.0001  # and in each later one
RHO2: Final = 0.14  # the interval is at its narrowest, against its promise, near 100 samples


@dataclass(frozen=True, slots=True)
class MeanOutside:
    """A mean outside its limits. Tokens."""

    mean_tokens: float
    judged: int
    short: bool  # below the lower limit; else above the upper one
    lately: bool  # the newest ones, not all from the beginning on


class MeanGuard:
    """The mean length of one dataset; None: no limit on that side."""

    def __init__(self, lower_tokens: float | None, upper_tokens: float | None) -> None:
        self.lower_tokens, self.upper_tokens = lower_tokens, upper_tokens
        self._blocks = self._count = 0
        self._mean = self._squares = 0.0  # Welford's sums

    def settle(self, tokens: int) -> MeanOutside | None:
        """The length of the next sample in order; says what speaks against the dataset."""
        if self.lower_tokens is None and self.upper_tokens is None:
            return None
        if self._count == BLOCK:
            self._blocks, self._count, self._mean, self._squares = self._blocks + 1, 0, 0.0, 0.0
        self._count += 1
        before = tokens - self._mean
        self._mean += before / self._count
        self._squares += before * (tokens - self._mean)
        if self._count < LEAST:
            return None
        margin = self._margin_tokens()
        short = self.lower_tokens is not None and self._mean + margin < self.lower_tokens
        long = self.upper_tokens is not None and self._mean - margin > self.upper_tokens
        return MeanOutside(self._mean, self._count, short, self._blocks > 0) if short or long else None

    def _margin_tokens(self) -> float:
        chance = CHANCE_LATER if self._blocks else CHANCE_FIRST
        spread = self._count * RHO2 + 1
        variance = self._squares / (self._count - 1)
        return math.sqrt(variance * 2 * spread / (self._count**2 * RHO2) * math.log(math.sqrt(spread) / chance))
