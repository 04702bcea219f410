"""One limit of so much a minute: what was used within the last one, counted as APIs count it, and when the next start may come.

Pure: times are seconds of a clock that does not go back. What a refusal teaches is `api_rate.py`'s.
"""

from __future__ import annotations

from collections import deque
from typing import Final

WINDOW_S: Final = 60.0
BIN_S: Final = 0.25  # the last minute is counted in bins of this width
BURST_S: Final = 5.0  # of missed starts that may be made up for at once
PACE: Final = 1.02  # a limit's worth and a little more: what was used within the minute is what binds
NEARLY: Final = 0.97  # of a limit, from where a refusal needs no other explanation


class Meter:
    """One limit a minute: what was used, and when the next start is due."""

    def __init__(self, limit: int | None) -> None:
        """`limit`: what is configured; None: found out."""
        self.configured = limit
        self.told: int | None = None  # by a header
        self.learnt: float | None = None  # from refusals
        self.pace = PACE
        self.used = 0.0
        self._bins: deque[list[float]] = deque()  # [when the bin begins, amount]
        self._due_at: float | None = None  # of the bucket: when it is as full as it gets

    @property
    def limit(self) -> float | None:
        """The lowest that is known."""
        known = [limit for limit in (self.configured, self.told, self.learnt) if limit is not None]
        return min(known) if known else None

    def forget(self, now: float) -> None:
        """What was used more than a minute ago counts no longer."""
        while self._bins and self._bins[0][0] + BIN_S <= now - WINDOW_S:
            self.used -= self._bins.popleft()[1]

    def use(self, amount: float, now: float) -> None:
        """So much is used now; less than nothing takes back."""
        self.forget(now)
        if not self._bins or now - self._bins[-1][0] >= BIN_S:
            self._bins.append([now, 0.0])
        self._bins[-1][1] += amount
        self.used += amount

    def next_at(self, cost: float, now: float) -> float:
        """When a start that uses `cost` may come."""
        limit = self.limit
        if limit is None:
            return now
        self.forget(now)
        at = now
        if self._bins and self.used + min(cost, limit) > limit:
            excess = self.used + min(cost, limit) - limit
            for begun_at, amount in self._bins:
                excess -= amount
                if excess <= 0:
                    at = max(at, begun_at + BIN_S + WINDOW_S)
                    break
        if self._due_at is not None:
            at = max(at, self._due_at - BURST_S)
        return at

    def is_nearly_used(self) -> bool:
        """Whether what is told or configured is used up as far as one can see from here."""
        known = [limit for limit in (self.configured, self.told) if limit is not None]
        return bool(known) and self.used >= NEARLY * min(known)

    def pass_on(self, cost: float, now: float) -> None:
        """Takes `cost` out of the bucket that spreads starts."""
        limit = self.limit
        if limit is not None:
            self._due_at = max(self._due_at or now, now) + cost * WINDOW_S / (limit * self.pace)
