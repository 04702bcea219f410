"""A paid API's limits: requests and tokens a minute, told in headers, refused with 429 and Retry-After."""

from __future__ import annotations

import time
from collections import deque

from backend.simulator.faults import Faults
from backend.simulator.serving import refusal_429

_NAMES = ("requests", "tokens")


class RateLimits:
    """Sliding minute (shortened by `speed`) of requests and tokens; None means no limit."""

    def __init__(self, requests_per_minute: int | None, tokens_per_minute: int | None, speed: float, faults: Faults) -> None:
        self._limits = (requests_per_minute, tokens_per_minute)
        self._window_s = 60.0 / speed
        self._faults = faults
        self._used: tuple[deque[tuple[float, int]], deque[tuple[float, int]]] = (deque(), deque())
        self._sums = [0, 0]
        self.refused = 0

    def admit(self, prompt_tokens: int) -> None:
        """Count a request. Raises ServerError 429 when a limit is reached."""
        now = time.monotonic()
        for index, amount in enumerate((1, prompt_tokens)):
            self._forget(index, now)
            limit, used = self._limits[index], self._used[index]
            if limit is not None and self._sums[index] + amount > limit:
                self.refused += 1
                wait_s = used[0][0] + self._window_s - now if used else self._window_s
                words = f"Rate limit reached for {_NAMES[index]} per minute."
                if "retry-in-words" not in self._faults:
                    words += f" Please try again in {max(wait_s, 0.001) * 1000:.0f}ms."
                raise refusal_429(self._faults, wait_s, words, self.headers())
        for index, amount in enumerate((1, prompt_tokens)):
            self._use(index, now, amount)

    def settle(self, completion_tokens: int) -> None:
        """Count what a request generated."""
        self._use(1, time.monotonic(), completion_tokens)

    def headers(self) -> dict[str, str]:
        """x-ratelimit-* for the limits there are."""
        now, headers = time.monotonic(), {}
        for index, name in enumerate(_NAMES):
            limit, used = self._limits[index], self._used[index]
            if limit is None:
                continue
            self._forget(index, now)
            reset_s = used[0][0] + self._window_s - now if used else 0.0
            headers[f"x-ratelimit-limit-{name}"] = str(limit)
            headers[f"x-ratelimit-remaining-{name}"] = str(max(0, limit - self._sums[index]))
            headers[f"x-ratelimit-reset-{name}"] = f"{reset_s:.3f}s"
        return headers

    def _use(self, index: int, now: float, amount: int) -> None:
        self._used[index].append((now, amount))
        self._sums[index] += amount

    def _forget(self, index: int, now: float) -> None:
        used = self._used[index]
        while used and used[0][0] <= now - self._window_s:
            self._sums[index] -= used.popleft()[1]
