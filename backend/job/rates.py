"""Rates over the last minutes from counts that only grow. Pure; times in epoch seconds."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field


@dataclass(slots=True)
class Window:
    """Differences of cumulative counts over the last `window_s` seconds."""

    window_s: float
    _points: deque[tuple[float, tuple[float, ...]]] = field(default_factory=deque)

    def add(self, now: float, *counts: float) -> None:
        """The counts as they are now."""
        self._points.append((now, counts))
        while len(self._points) > 2 and self._points[1][0] <= now - self.window_s:
            self._points.popleft()

    def differences(self) -> tuple[float, tuple[float, ...]] | None:
        """Seconds covered and how much each count grew; None before a second point."""
        if len(self._points) < 2:
            return None
        (then, first), (now, last) = self._points[0], self._points[-1]
        if now <= then:
            return None
        return now - then, tuple(b - a for a, b in zip(first, last, strict=True))

    def rates(self) -> tuple[float, ...] | None:
        """Growth of each count in units a second; None where it is not known."""
        differences = self.differences()
        if differences is None:
            return None
        seconds, grown = differences
        return tuple(value / seconds for value in grown)
