"""Conditions that a person should know of, turned into one event when they begin and one when they end. Pure."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

from backend.records import Event, Severity


@dataclass(slots=True)
class Alarms:
    """Which conditions hold. A condition that goes on is told once."""

    _raised: dict[str, str] = field(default_factory=dict)

    def update(self, now: float, kind: str, subject: str, problem: str | None, *, over: str = "") -> list[Event]:
        """One condition as it is now.

        Args:
            now: epoch seconds.
            kind: the event's stable name; `<kind>.over` is told at the end.
            subject: what it is about; kind and subject together name the condition.
            problem: the sentence, None while nothing is wrong.
            over: the sentence for the end.
        """
        key = f"{kind}/{subject}"
        if problem is not None and key not in self._raised:
            self._raised[key] = problem
            return [Event(now, kind, subject, problem, Severity.WARNING)]
        if problem is None and key in self._raised:
            del self._raised[key]
            return [Event(now, f"{kind}.over", subject, over or "This is over.")]
        return []


@dataclass(slots=True)
class ThroughputWatch:
    """Notices that a replica makes far fewer tokens than it did with as many requests (a full KV pool, a slow GPU).

    The reference is the best minute of the last `memory` ones with nearly as many requests in flight, so that a drain or a
    smaller concurrency is no alarm.
    """

    window_s: float = 60.0
    memory: int = 60
    low_share: float = 0.5
    _sums: list[float] = field(default_factory=lambda: [0.0, 0.0, 0.0])  # seconds, tokens/s × seconds, in flight × seconds
    _windows: deque[tuple[float, float]] = field(default_factory=deque)  # tokens/s, in flight
    _problem: str | None = None

    def feed(self, seconds: float, tokens_per_s: float | None, in_flight: float) -> str | None:
        """One observation that stands for `seconds`. Returns the problem as a sentence, or None."""
        if tokens_per_s is None:
            return self._problem
        self._sums = [self._sums[0] + seconds, self._sums[1] + tokens_per_s * seconds, self._sums[2] + in_flight * seconds]
        if self._sums[0] < self.window_s:
            return self._problem
        mean, busy = self._sums[1] / self._sums[0], self._sums[2] / self._sums[0]
        self._sums = [0.0, 0.0, 0.0]
        like = [speed for speed, load in self._windows if 0.9 * busy <= load <= 1.25 * busy]
        best = max(like, default=0.0)
        self._problem = None
        if len(like) >= 2 and busy >= 1 and mean < self.low_share * best:
            self._problem = (
                f"Throughput has fallen to {mean / best:.0%} of what it was with as many requests in flight: {mean:,.0f} "
                f"tokens/s, before {best:,.0f}. A full KV pool (retractions) or a throttled GPU does this: lower the "
                f"concurrency, or restart the engine."
            )
        self._windows.append((mean, busy))
        while len(self._windows) > self.memory:
            self._windows.popleft()
        return self._problem
