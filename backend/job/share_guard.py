"""Whether a share is above its limit, asked after every sample: a sequential test that is not fooled by looking often.

Two tests run side by side over the samples in the order of their start, both made of likelihood ratios: shares above the limit
against the limit itself.

* *From the beginning*, a mixture over such shares. It is a test martingale: where the share is at most the limit, the chance
  that it ever comes to EVIDENCE is below 1 / EVIDENCE (Ville's inequality; Wald, "Sequential Tests of Statistical Hypotheses",
  1945; Robbins, "Statistical Methods Related to the Law of the Iterated Logarithm", 1970, for the mixture).
* *Lately*, the same ratios begun anew whenever they speak for the limit (Page, "Continuous Inspection Schemes", 1954), for a
  dataset that turns bad after a hundred thousand good samples. Each gives a false alarm less often than once in EVIDENCE_LATELY
  samples (Lorden, "Procedures for Reacting to a Change in Distribution", 1971).

Both rise with a hit and fall with a miss. So a sample that is not finished may be counted as a miss: whatever it turns out to
be, the tests never see more than they would see at the end, and what is said above holds at every moment.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

EVIDENCE: Final = 200.0
EVIDENCE_LATELY: Final = 1e6
# How far beyond the limit the shares lie that are looked for, as differences of log-odds: 20 % → 27, 36, 55 and 86 %.
ALTERNATIVES_LOG_ODDS: Final = (0.4, 0.8, 1.6, 3.2)


@dataclass(frozen=True, slots=True)
class Excess:
    """A share above its limit: so many hits among so many samples that were started one after the other."""

    hits: int
    judged: int
    lately: bool  # the newest ones, not all from the beginning on

    @property
    def share(self) -> float:
        """0..1."""
        return self.hits / self.judged


class _Counts(NamedTuple):
    hits: int = 0
    judged: int = 0


class ShareGuard:
    """One share of one dataset, above whose limit it is to be held."""

    def __init__(self, limit: float) -> None:
        """`limit` from 0 (a single hit is too much) to below 1."""
        self.limit = limit
        null = max(limit, 1e-9)
        odds = math.log(null / (1 - null))
        shares = [1 / (1 + math.exp(-odds - further)) for further in ALTERNATIVES_LOG_ODDS]
        self._hit = [math.log(share / null) for share in shares]
        self._miss = [math.log((1 - share) / (1 - null)) for share in shares]
        self._evidence = [0.0] * len(shares)  # logarithms, over all settled samples
        self._lately = [0.0] * len(shares)  # over those since the test of late began anew
        self._counts = _Counts()
        self._began = [_Counts()] * len(shares)  # what was settled before that

    def settle(self, *, hit: bool) -> None:
        """The next sample in order is what it is for good."""
        self._counts = _Counts(self._counts.hits + hit, self._counts.judged + 1)
        for i, step in enumerate(self._hit if hit else self._miss):
            self._evidence[i] += step
            self._lately[i] += step
            if self._lately[i] <= 0:
                self._lately[i], self._began[i] = 0.0, self._counts

    def excess(self, tail: npt.NDArray[np.bool_]) -> Excess | None:
        """What speaks against the dataset; `tail` tells of each sample after the settled ones whether it is a hit so far."""
        hits = np.concatenate(([0], np.cumsum(tail)))
        if self.limit == 0:
            found = self._counts.hits + int(hits[-1])
            return Excess(found, self._counts.judged + len(tail), lately=False) if found else None
        judged = np.arange(len(hits))
        steps = np.outer(hits, self._hit) + np.outer(judged - hits, self._miss)  # after 0, 1, 2, ... samples of the tail
        evidence = np.logaddexp.reduce(self._evidence + steps, axis=1) - math.log(steps.shape[1])
        place = int(np.argmax(evidence))
        if evidence[place] >= math.log(EVIDENCE):
            return Excess(self._counts.hits + int(hits[place]), self._counts.judged + place, lately=False)
        lowest = np.minimum.accumulate(steps, axis=0)
        lately = steps + np.maximum(self._lately, -lowest)
        place, which = (int(i) for i in np.unravel_index(np.argmax(lately), lately.shape))
        if lately[place, which] < math.log(EVIDENCE_LATELY):
            return None
        began = self._began[which]
        if -lowest[place, which] > self._lately[which]:  # within the tail
            first = int(np.argmin(steps[: place + 1, which]))
            began = _Counts(self._counts.hits + int(hits[first]), self._counts.judged + first)
        return Excess(
            self._counts.hits + int(hits[place]) - began.hits, self._counts.judged + place - began.judged, lately=True
        )
