"""How many tokens a second n running requests make together: a piecewise linear curve."""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass

DEFAULT_CURVE = "1:62,4:207,8:370,16:385,32:393,48:409"
API_CURVE = "1:60,10000:600000"
"""An API serves each request at its own pace, whoever else is there."""


@dataclass(frozen=True, slots=True)
class SpeedCurve:
    """Points (running requests, tokens/s of all of them together), ascending; constant after the last one."""

    running: tuple[float, ...]
    tokens_per_s: tuple[float, ...]

    @classmethod
    def parse(cls, text: str) -> SpeedCurve:
        """Read `n:tokens_per_s,n:tokens_per_s,...`. Raises ValueError that says what is wrong."""
        points: list[tuple[float, float]] = []
        for part in text.split(","):
            count, separator, speed = part.partition(":")
            try:
                point = (float(count), float(speed))
            except ValueError:
                separator = ""
                point = (0.0, 0.0)
            if not separator or point[0] <= 0 or point[1] <= 0:
                raise ValueError(f"curve point {part!r}: expected RUNNING:TOKENS_PER_S, both above 0")
            points.append(point)
        counts = tuple(count for count, _ in points)
        if list(counts) != sorted(set(counts)):
            raise ValueError(f"curve {text!r}: the numbers of running requests must ascend")
        return cls(counts, tuple(speed for _, speed in points))

    def at(self, running: int) -> float:
        """Tokens/s of all running requests together; 0.0 when none runs."""
        if running <= 0:
            return 0.0
        if running <= self.running[0]:
            return self.tokens_per_s[0] * running / self.running[0]
        if running >= self.running[-1]:
            return self.tokens_per_s[-1]
        right = bisect_left(self.running, running)
        left = right - 1
        share = (running - self.running[left]) / (self.running[right] - self.running[left])
        return self.tokens_per_s[left] + share * (self.tokens_per_s[right] - self.tokens_per_s[left])
