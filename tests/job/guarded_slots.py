"""A server's slots as a guard sees them: bad answers return at once, the others take their time. Time is simulated."""

from __future__ import annotations

import heapq
import math
import random
from collections.abc import Callable

Started, Finished = Callable[[int], None], Callable[[int, bool], bool]


def run_slots(
    started: Started, finished: Finished, *, bad_share: float, samples: int, in_flight: int, seed: int
) -> tuple[int, int] | None:
    """Keeps `in_flight` samples going, numbered in the order of their start, until `finished` asks to hold.

    Returns how many had been started and finished then; None where it never asks. A bad one takes 6 tokens, the others have
    log-normal lengths (mean 2,000).
    """
    rng = random.Random(seed)
    running: list[tuple[float, int, bool]] = []
    begun = done = 0
    while begun < samples or running:
        while begun < samples and len(running) < in_flight:
            now = running[0][0] if done else 0.0
            bad = rng.random() < bad_share
            started(begun)
            heapq.heappush(running, (now + (6.0 if bad else rng.lognormvariate(math.log(2_000) - 0.5, 1.0)), begun, bad))
            begun += 1
        _, number, bad = heapq.heappop(running)
        done += 1
        if finished(number, bad):
            return begun, done
    return None


class NaiveRule:
    """What looks right and is not: the share among the finished ones, from the twelfth on."""

    def __init__(self, limit: float) -> None:
        self._limit, self._bad, self._finished = limit, 0, 0

    def started(self, number: int) -> None:
        """It does not care."""

    def finished(self, _number: int, bad: bool) -> bool:
        """Whether to hold."""
        self._bad, self._finished = self._bad + bad, self._finished + 1
        return self._finished >= 12 and self._bad / self._finished > self._limit
