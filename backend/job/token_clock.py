"""How many tokens a request in flight has made, which a server says only at its end: the clock that ticks in tokens.

It runs at the speed of one request and stops with the server; its scale is set by the requests that finished. Pure.
"""

from __future__ import annotations

from typing import Final

SPEED_MEMORY: Final = 200.0  # finished requests over which the scale is averaged


class TokenClock:
    """Tokens that one request would have made since the start; differences between two readings are what counts.

    Without any speed it ticks in seconds, which finished requests scale to tokens all the same: right while speed is steady.
    """

    def __init__(self) -> None:
        self.reading = 0.0
        self._now: float | None = None
        self._speed: float | None = None
        self._tokens = 0.0  # of finished requests, and what the clock said of them: both fade
        self._ticks = 0.0

    @property
    def scale(self) -> float:
        """Tokens a tick; 0 while nothing is known about the speed, so that no request seems to have made any."""
        if self._ticks > 0:
            return self._tokens / self._ticks
        return 1.0 if self._speed is not None else 0.0

    def advance(self, now: float) -> float:
        """Go on to `now` (seconds; what is earlier than before is ignored). Returns the reading."""
        if self._now is not None and now > self._now:
            self.reading += (now - self._now) * (1.0 if self._speed is None else self._speed)
        self._now = now if self._now is None else max(now, self._now)
        return self.reading

    def set_speed(self, tokens_per_s: float) -> float:
        """Speed of one request from here on. Returns the factor by which readings taken before must be multiplied."""
        if self._speed is not None or tokens_per_s <= 0:
            self._speed = tokens_per_s if self._speed is not None else None
            return 1.0
        factor = self.scale or tokens_per_s
        self.reading *= factor
        self._ticks *= factor
        self._speed = tokens_per_s
        return factor

    def learn(self, started_reading: float, tokens: int) -> None:
        """A request that started at that reading has finished now with so many tokens."""
        ticks = self.reading - started_reading
        if ticks > 0:
            keep = 1 - 1 / SPEED_MEMORY
            self._tokens = self._tokens * keep + tokens
            self._ticks = self._ticks * keep + ticks
