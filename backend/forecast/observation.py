"""What a forecaster is given: how far each dataset is, what the server has made so far, and which rules end a dataset.

Plain values without names of prompts, whatever the number of samples: lengths are counted in log-spaced bins. The supervisor
builds them from its live state; `from_json.py` reads them from JSON.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final, Self

import numpy as np
from numpy.typing import NDArray

from backend.records import DatasetState

Floats = NDArray[np.float64]

BINS_PER_OCTAVE: Final = 8
BINS: Final = 20 * BINS_PER_OCTAVE
EDGES_TOKENS: Final[Floats] = 2.0 ** (np.arange(BINS + 1) / BINS_PER_OCTAVE) - 1  # bin k: from edge k up to edge k + 1
MAX_TOKENS: Final = int(EDGES_TOKENS[-1])  # a million; longer ones count as this long

ADMITTING: Final = frozenset({DatasetState.RUNNING, DatasetState.WAITING})
FINISHING: Final = frozenset({DatasetState.DRAINING, DatasetState.PAUSED})  # what is in flight finishes, nothing is admitted


class BudgetStop(StrEnum):
    """What happens as a dataset comes to its token budget."""

    DRAIN = "drain"  # finished tokens reach it, then requests in flight finish: it is overshot by what they still make
    CANCEL = "cancel"  # finished tokens reach it, then requests in flight are dropped
    RESERVE = "reserve"  # admission ends as finished and expected tokens reach it: the sum lands close to it


@dataclass(frozen=True, slots=True, eq=False)  # arrays have no single truth
class LengthCounts:
    """Lengths in completion tokens, counted in the bins of `EDGES_TOKENS`: how many there are in each, and their sum."""

    counts: Floats = field(default_factory=lambda: np.zeros(BINS))
    tokens: Floats = field(default_factory=lambda: np.zeros(BINS))

    @classmethod
    def of(
        cls, lengths: Sequence[float] | NDArray[np.generic], times: Sequence[float] | NDArray[np.generic] | None = None
    ) -> Self:
        """Counts these lengths, the i-th of them `times[i]` times (default: once)."""
        values = np.minimum(np.asarray(lengths, dtype=np.float64), MAX_TOKENS)
        weights = np.ones(len(values)) if times is None else np.asarray(times, dtype=np.float64)
        bins = bins_of(values)
        counts = np.bincount(bins, weights, minlength=BINS).astype(np.float64)
        return cls(counts, np.bincount(bins, values * weights, minlength=BINS).astype(np.float64))

    @property
    def total(self) -> float:
        """How many there are."""
        return float(self.counts.sum())

    @property
    def total_tokens(self) -> float:
        """What they come to."""
        return float(self.tokens.sum())


@dataclass(frozen=True, slots=True)
class DatasetNow:
    """One dataset at the moment of the observation."""

    name: str
    state: DatasetState
    prompts: int  # the most samples that it will make: the smaller of its prompts and its max_samples
    token_budget: int | None  # completion tokens; None: unlimited
    max_new_tokens: int | None  # cap of one completion; None: unlimited
    finished: LengthCounts = field(default_factory=LengthCounts)  # those that came to the cap are not in here
    finished_at_cap: int = 0
    in_flight: LengthCounts = field(default_factory=LengthCounts)  # by the tokens made so far
    more_tokens: float = 0.0  # finished beyond what the counts come to: completions longer than a cap lowered since

    @property
    def finished_samples(self) -> float:
        """Samples that count."""
        return self.finished.total + self.finished_at_cap

    @property
    def finished_tokens(self) -> float:
        """Completion tokens of the samples that count."""
        return self.finished.total_tokens + self.finished_at_cap * self.cap_tokens + self.more_tokens

    @property
    def cap_tokens(self) -> float:
        """The most tokens of one completion that are reckoned with."""
        return float(min(self.max_new_tokens or MAX_TOKENS, MAX_TOKENS))


@dataclass(frozen=True, slots=True, eq=False)  # arrays have no single truth
class SpeedHistory:
    """What the server did in this session, oldest first, in bins of `bin_s` seconds of active time."""

    bin_s: float
    tokens_per_s: Floats  # useful completion tokens a second; 0 for a minute or more is an outage
    running: Floats  # mean number of requests in flight


@dataclass(frozen=True, slots=True)
class Observation:
    """All that a forecast depends on. Datasets in the order in which they run."""

    active_s: float  # pauses not counted
    concurrency: int  # requests kept in flight from now on
    datasets: tuple[DatasetNow, ...]
    history: SpeedHistory
    speed_curve: tuple[tuple[float, float], ...] | None = None  # (requests running, tokens/s), from a sweep
    budget_stop: BudgetStop = BudgetStop.RESERVE
    overlap: bool = True  # the next dataset is admitted into slots that one leaves free as it ends
    later_curve: tuple[tuple[float, float], ...] | None = None  # if another one holds from now on (more replicas)
    speed_factor: float = 1.0  # an assumption: later speed over what the history says


def bins_of(tokens: Floats) -> NDArray[np.intp]:
    """The bin of each length."""
    return np.clip(np.searchsorted(EDGES_TOKENS, tokens + 1e-9, side="right") - 1, 0, BINS - 1)


def count_dataset(
    name: str,
    state: DatasetState,
    *,
    prompts: int,
    token_budget: int | None,
    max_new_tokens: int | None,
    finished_lengths: Sequence[float] | NDArray[np.generic] = (),
    times: Sequence[int] | NDArray[np.generic] | None = None,
    in_flight_tokens: Iterable[float] = (),
) -> DatasetNow:
    """A dataset from the lengths themselves, the i-th finished one counted `times[i]` times (default: once)."""
    lengths = np.asarray(finished_lengths, dtype=np.float64)
    each = np.ones(len(lengths)) if times is None else np.asarray(times, dtype=np.float64)
    at_cap = lengths >= (max_new_tokens or MAX_TOKENS)
    return DatasetNow(
        name=name,
        state=state,
        prompts=prompts,
        token_budget=token_budget,
        max_new_tokens=max_new_tokens,
        finished=LengthCounts.of(lengths[~at_cap], each[~at_cap]),
        finished_at_cap=int(each[at_cap].sum()),
        in_flight=LengthCounts.of(np.minimum(list(in_flight_tokens), max_new_tokens or MAX_TOKENS)),
    )
