"""What an export counts as it goes: what was written, how long it is, what was left out and why."""

from __future__ import annotations

from array import array
from collections import Counter
from dataclasses import dataclass, field

import numpy as np


@dataclass(slots=True)
class DatasetTally:
    """One dataset of an export."""

    samples: int = 0
    holdout: int = 0
    completion_tokens: int = 0


@dataclass(frozen=True, slots=True)
class LengthBin:
    """Samples of at least `low` and less than `high` completion tokens."""

    low: int
    high: int
    samples: int


@dataclass(slots=True)
class Tally:
    """The whole export."""

    datasets: dict[str, DatasetTally] = field(default_factory=dict)
    outcomes: Counter[str] = field(default_factory=Counter)  # of what was written
    makers: Counter[tuple[str, str]] = field(default_factory=Counter)  # source and model of what was written
    left_out: Counter[str] = field(default_factory=Counter)  # reason → samples
    lengths: array[int] = field(default_factory=lambda: array("q"))  # completion tokens of what was written

    def add(self, dataset: str, outcome: str, maker: tuple[str, str], tokens: int, *, holdout: bool) -> None:
        """One sample was written."""
        one = self.datasets.setdefault(dataset, DatasetTally())
        one.samples += 1
        one.holdout += holdout
        one.completion_tokens += tokens
        self.outcomes[outcome] += 1
        self.makers[maker] += 1
        self.lengths.append(tokens)

    @property
    def samples(self) -> int:
        """How many were written."""
        return len(self.lengths)

    @property
    def holdout(self) -> int:
        """How many of them are held out."""
        return sum(one.holdout for one in self.datasets.values())

    def quantiles(self, shares: tuple[float, ...]) -> tuple[int, ...]:
        """Completion tokens that so large a share of the samples does not exceed (nearest rank). Needs a sample."""
        found = np.quantile(np.frombuffer(self.lengths, dtype=np.int64), shares, method="inverted_cdf")
        return tuple(int(value) for value in found)

    def histogram(self) -> list[LengthBin]:
        """Lengths in bins that double, from the first to the last that holds a sample."""
        values = np.frombuffer(self.lengths, dtype=np.int64)
        if not len(values):
            return []
        # 0 → bin 0 (0 tokens), 1 → bin 1 (1), 2..3 → bin 2, 4..7 → bin 3
        bins = np.where(values > 0, np.floor(np.log2(np.maximum(values, 1))).astype(np.int64) + 1, 0)
        counts = np.bincount(bins)
        first = int(np.flatnonzero(counts)[0])
        return [LengthBin(1 << (i - 1) if i else 0, 1 << i, int(counts[i])) for i in range(first, len(counts))]
