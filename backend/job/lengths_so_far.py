"""How long the answers of one dataset will be, learnt while most of them are still being made.

Finished answers count as seen, requests in flight as "at least this long": short answers finish first, so that the mean of the
finished ones alone is far too short early on. Log-spaced counts only, whatever the number of samples; no clock, no I/O.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

BINS_PER_OCTAVE: Final = 8
BINS: Final = 20 * BINS_PER_OCTAVE  # bin k holds lengths from 2^(k/8) - 1 tokens on; the last one ends at a million
EDGES_TOKENS: Final = tuple(2 ** (k / BINS_PER_OCTAVE) - 1 for k in range(BINS + 1))
EDGE_LOGS: Final = tuple(k / BINS_PER_OCTAVE * math.log(2) for k in range(BINS + 1))  # log(tokens + 1)
BASE_WEIGHT: Final = 30.0  # in samples: how much the fitted log-normal weighs against the counts of a bin
SHORT_BINS: Final = 5 * BINS_PER_OCTAVE  # up to 30 tokens: one-word and empty answers, a kind of their own
SHORT_WEIGHT: Final = 4.0  # in samples: how much "none that short" weighs against the counts there
PRIOR_LOG_SD: Final = 1.0  # of one dataset's lengths
LOG_SD_RANGE: Final = (0.1, 2.0)
REFITS: Final = 10  # steps of expectation-maximisation from the prior to what is known already


@dataclass(frozen=True, slots=True)
class Outlook:
    """What the requests in flight will come to, in completion tokens, those they have made so far included."""

    expected_tokens: float
    made_tokens: float  # so far, as their ages say
    variance: float  # tokens², of the sum, if the distribution of lengths is right


class LengthsSoFar:
    """The lengths of one dataset's answers: a log-normal fitted with censoring, corrected bin by bin where there is data."""

    def __init__(self, *, cap_tokens: int | None, prior_mean_tokens: float, prior_weight: float = 4.0) -> None:
        """`cap_tokens` is the most tokens one answer may have; `prior_weight` says how many samples the prior is worth."""
        self._cap_tokens = cap_tokens
        self._prior_weight = prior_weight
        self._prior_log_mean = math.log(max(prior_mean_tokens, 1.0)) - PRIOR_LOG_SD**2 / 2
        self._log_mean = self._prior_log_mean
        self._log_sd = PRIOR_LOG_SD
        self._ended = [0] * BINS  # answers by length; those ended by the cap stand apart
        self._ended_tokens = [0] * BINS
        self._capped = 0
        self._fitted = 0  # answers that the log-normal is fitted to: neither short nor capped
        self._log_sum = 0.0
        self._log_square_sum = 0.0
        self._mean = [0.0] * (BINS + 1)  # E[L | L > edge k]
        self._square = [0.0] * (BINS + 1)  # E[L² | L > edge k]
        self.outlook(())

    @property
    def mean_tokens(self) -> float:
        """Expected length of an answer not yet started."""
        return self._mean[0]

    @property
    def variance(self) -> float:
        """Variance (tokens²) of the length of an answer not yet started."""
        return self._square[0] - self._mean[0] ** 2

    @property
    def telling(self) -> int:
        """How many finished answers tell how long one is that is not short."""
        return self._fitted + self._capped

    @property
    def cap_tokens(self) -> int | None:
        """The most tokens that one answer may have."""
        return self._cap_tokens

    def with_cap(self, cap_tokens: int | None) -> LengthsSoFar:
        """The same experience under another cap: answers beyond it would have been ended by it.

        Those that the old cap ended count as that long, which is too short where the new cap is higher: it is learnt anew.
        """
        other = LengthsSoFar(
            cap_tokens=cap_tokens,
            prior_mean_tokens=math.exp(self._prior_log_mean + PRIOR_LOG_SD**2 / 2),
            prior_weight=self._prior_weight,
        )
        for k, n in enumerate(self._ended):
            for _ in range(n):
                other.add(round(self._ended_tokens[k] / n))
        for _ in range(self._capped):
            other.add(self._cap_tokens or 0)
        for _ in range(REFITS):
            other.outlook(())
        return other

    def add(self, tokens: int) -> None:
        """Count a finished answer; it shows in the figures from the next `outlook` on."""
        if self._cap_tokens is not None and tokens >= self._cap_tokens:
            self._capped += 1
            return
        log = math.log(tokens + 1)
        k = _bin_of(log)
        self._ended[k] += 1
        self._ended_tokens[k] += tokens
        if k < SHORT_BINS:
            return
        self._fitted += 1
        self._log_sum += log
        self._log_square_sum += log * log

    def expected_tokens(self, made_tokens: float) -> float:
        """Expected length of an answer that has made so many tokens and goes on; O(1)."""
        if self._cap_tokens is not None and made_tokens >= self._cap_tokens:
            return float(self._cap_tokens)
        place = math.log2(made_tokens + 1) * BINS_PER_OCTAVE
        k = min(int(place), BINS - 1)
        return max(self._mean[k] + (place - k) * (self._mean[k + 1] - self._mean[k]), made_tokens)

    def outlook(self, made_tokens: Iterable[float]) -> Outlook:
        """Learn from how far each request in flight has come, and say what they will come to. O(in flight + bins)."""
        running = [0] * BINS
        part_way = [0.0] * BINS  # how far into the bin, summed over its requests, each 0..1
        made_sum = 0.0
        limit = min(float(self._cap_tokens or EDGES_TOKENS[BINS]), EDGES_TOKENS[BINS]) * 0.999
        log2 = math.log2
        for made in made_tokens:
            so_far = min(made, limit)
            place = log2(so_far + 1) * BINS_PER_OCTAVE
            k = int(place)
            running[k] += 1
            part_way[k] += place - k
            made_sum += so_far
        self._fit_base(running)
        self._fit_bins(running)
        expected = square = squared = 0.0
        for k, n in enumerate(running):
            if n:
                share = part_way[k]
                mean = n * self._mean[k] + share * (self._mean[k + 1] - self._mean[k])
                expected += mean
                squared += mean * mean / n
                square += n * self._square[k] + share * (self._square[k + 1] - self._square[k])
        return Outlook(max(expected, made_sum), made_sum, max(square - squared, 0.0))

    def _fit_base(self, running: list[int]) -> None:
        """One step of expectation-maximisation for the log-normal of what is not short, from where the last call left it."""
        weight = self._prior_weight + self._fitted
        log_sum = self._prior_weight * self._prior_log_mean + self._log_sum
        square_sum = self._prior_weight * (self._prior_log_mean**2 + PRIOR_LOG_SD**2) + self._log_square_sum
        at_least = [(EDGE_LOGS[k] + EDGE_LOGS[k + 1], n) for k, n in enumerate(running) if n and k >= SHORT_BINS]
        if self._capped and self._cap_tokens is not None:
            at_least.append((2 * math.log(self._cap_tokens + 1), self._capped))
        for twice_log, n in at_least:
            z = (twice_log / 2 - self._log_mean) / self._log_sd
            beyond = _normal_hazard(z)
            mean = self._log_mean + self._log_sd * beyond
            weight += n
            log_sum += n * mean
            square_sum += n * (mean * mean + self._log_sd**2 * max(1 + z * beyond - beyond * beyond, 0.0))
        self._log_mean = log_sum / weight
        variance = max(square_sum / weight - self._log_mean**2, 0.0)
        self._log_sd = min(max(math.sqrt(variance), LOG_SD_RANGE[0]), LOG_SD_RANGE[1])

    def _fit_bins(self, running: list[int]) -> None:
        """The chance of ending in each bin, given that it is reached, and from these the expectations, from the top down."""
        cap = float(self._cap_tokens) if self._cap_tokens is not None else EDGES_TOKENS[BINS]
        at_risk = float(self._capped)  # answers known to have reached the bin's end
        mean, square = cap, cap * cap
        survival_after = 0.0
        self._mean[BINS], self._square[BINS] = mean, square
        scale = self._log_sd * math.sqrt(2)
        not_short = max(math.erfc((EDGE_LOGS[SHORT_BINS] - self._log_mean) / scale), 1e-300)
        for k in range(BINS - 1, -1, -1):
            beyond_short = k > SHORT_BINS
            survival = math.erfc((EDGE_LOGS[k] - self._log_mean) / scale) / not_short if beyond_short else 1.0
            ended = self._ended[k]
            reached = at_risk + ended + running[k] / 2  # those inside the bin have run half of its risk, on average
            at_risk += ended + running[k]
            if EDGES_TOKENS[k] < cap:
                prior = BASE_WEIGHT if k >= SHORT_BINS else SHORT_WEIGHT
                weight = prior * survival + reached
                prior_ended = prior * (survival - survival_after)
                chance = (prior_ended + ended) / weight if weight > 0 else 1.0
                typical = min(math.sqrt((EDGES_TOKENS[k] + 1) * (EDGES_TOKENS[k + 1] + 1)) - 1, cap)
                length = (self._ended_tokens[k] + prior_ended * typical) / (ended + prior_ended or 1.0) or typical
                mean = chance * length + (1 - chance) * mean
                square = chance * length * length + (1 - chance) * square
            self._mean[k], self._square[k] = mean, square
            survival_after = survival


def _bin_of(log: float) -> int:
    return min(int(log / math.log(2) * BINS_PER_OCTAVE), BINS - 1)


def _normal_hazard(z: float) -> float:
    """Density over survival of the standard normal: the mean of what lies beyond z."""
    if z > 8:  # beyond the reach of erfc's precision: the first terms of the asymptotic series
        return z + 1 / z
    return math.exp(-z * z / 2) / math.sqrt(2 * math.pi) / (0.5 * math.erfc(z / math.sqrt(2)))
