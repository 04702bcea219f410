"""A paid API's limits: requests and tokens a minute, told in headers, refused with 429 and Retry-After."""

from __future__ import annotations

import time
from collections import deque

from backend.simulator.serving import ServerError


class RateLimits:
    """Sliding minute (shortened by `speed`) of requests and tokens; None means no limit."""

    def __init__(self, requests_per_minute: int | None, tokens_per_minute: int | None, speed: float) -> None:
        self._limits = (requests_per_minute, tokens_per_minute)
        self._window_s = 60.0 / speed
        self._used: tuple[deque[tuple[float, int]], deque[tuple[float, int]]] = (deque(), deque())

    def admit(self, prompt_tokens: int) -> None:
        """Count a request. Raises ServerError 429 when a limit is reached."""
        now = time.monotonic()
        for limit, used, amount in zip(self._limits, self._used, (1, prompt_tokens), strict=True):
            self._forget(used, now)
            if limit is not None and sum(count for _, count in used) + amount > limit:
                wait_s = used[0][0] + self._window_s - now if used else self._window_s
                message = f"Rate limit reached. Please try again in {max(wait_s, 0.001) * 1000:.0f}ms."
                raise ServerError(429, message, {**self.headers(), "Retry-After": f"{max(1, round(wait_s))}"})
        for used, amount in zip(self._used, (1, prompt_tokens), strict=True):
            used.append((now, amount))

    def settle(self, completion_tokens: int) -> None:
        """Count what a request generated."""
        self._used[1].append((time.monotonic(), completion_tokens))

    def headers(self) -> dict[str, str]:
        """x-ratelimit-* for the limits there are."""
        now, headers = time.monotonic(), {}
        for limit, used, name in zip(self._limits, self._used, ("requests", "tokens"), strict=True):
            if limit is None:
                continue
            self._forget(used, now)
            reset_s = used[0][0] + self._window_s - now if used else 0.0
            headers[f"x-ratelimit-limit-{name}"] = str(limit)
            headers[f"x-ratelimit-remaining-{name}"] = str(max(0, limit - sum(count for _, count in used)))
            headers[f"x-ratelimit-reset-{name}"] = f"{reset_s:.3f}s"
        return headers

    def _forget(self, used: deque[tuple[float, int]], now: float) -> None:
        while used and used[0][0] <= now - self._window_s:
            used.popleft()
