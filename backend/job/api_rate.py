"""How fast one API may be asked: concurrency, requests and tokens a minute, configured, told in headers or learnt from 429s.

Pure: times are seconds of a clock that does not go back. What was used within the last minute is counted as APIs count it, and
nothing starts while that has reached the limit. Alone that would swing, because answers use their tokens when they end. So no
more streams are kept open than make the limit's tokens a second; their speed is known from the first answers, while mean
lengths are not, because short answers end first.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from backend.job.api_meter import BIN_S, PACE, WINDOW_S, Meter

PACE_CUT: Final = 0.95  # after a refusal that the count did not foresee
PACE_GROWS_AFTER_S: Final = 10.0
PACE_STEP: Final = 0.01
LEAST_PACE: Final = 0.2
LIMIT_GROWS_AFTER_S: Final = 60.0  # a limit learnt from refusals is tried again, by this share
LIMIT_STEP: Final = 1.1
FIRST_CONCURRENCY: Final = 32  # then one more for each request that is taken
MOST_CONCURRENCY: Final = 1_000  # where none is configured
CONCURRENCY_CUT: Final = 0.9
SPEED_KEPT: Final = 0.998  # of what former answers say of the speed, at each further one
LEAST_WAIT_S: Final = 0.5  # after a refusal that does not say how long


class Resource(StrEnum):
    """What a limit is of."""

    REQUESTS = "requests"
    TOKENS = "tokens"
    CONCURRENCY = "concurrency"


@dataclass(frozen=True, slots=True)
class RateView:
    """What is known of the limits now; None: no limit is known."""

    concurrency: int
    requests_per_minute: int | None
    tokens_per_minute: int | None
    held_until: float | None  # nothing is sent before, because the API said so
    used_requests: int  # within the last minute
    used_tokens: int


class ApiRate:
    """The limits of one API."""

    def __init__(
        self, *, concurrency: int | None = None, requests_per_minute: int | None = None, tokens_per_minute: int | None = None
    ) -> None:
        """What is configured; None: found out."""
        self._ceiling: float = concurrency or MOST_CONCURRENCY
        self._most = self._ceiling
        self._open: float = min(FIRST_CONCURRENCY, self._ceiling)
        self._requests = Meter(requests_per_minute)
        self._tokens = Meter(tokens_per_minute)
        self._prompts = Meter(None)  # the part of the tokens that is prompts
        self._tokens_made = self._stream_s = 0.0  # of answers, the newest ones counting most
        self._begun_at: float | None = None
        self._held_until = float("-inf")
        self._last_cut_at = float("-inf")
        self._last_change_at = float("-inf")

    @property
    def concurrency(self) -> int:
        """How many requests may be in flight now."""
        limit, speed = self._tokens.limit, self.stream_tokens_per_s
        streams = min(self._open, self._ceiling)
        if limit is not None and speed:
            for_answers = max(0.0, limit - self._prompts.used) * self._tokens.pace / WINDOW_S
            streams = min(streams, for_answers / speed)
        return max(1, int(streams))

    @property
    def stream_tokens_per_s(self) -> float | None:
        """Tokens a second of one answer, from its start to its end; None before the first."""
        return self._tokens_made / self._stream_s if self._stream_s else None

    def view(self, now: float) -> RateView:
        """The limits as they are known now."""
        self._requests.forget(now)
        self._tokens.forget(now)
        self._prompts.forget(now)
        return RateView(
            concurrency=self.concurrency,
            requests_per_minute=_whole(self._requests.limit),
            tokens_per_minute=_whole(self._tokens.limit),
            held_until=self._held_until if self._held_until > now else None,
            used_requests=round(self._requests.used),
            used_tokens=round(self._tokens.used),
        )

    def next_start_at(self, now: float, prompt_tokens: float) -> float:
        """When the next request may be sent: `now`, or later."""
        self._recover(now)
        return max(
            now,
            self._held_until,
            self._requests.next_at(1, now),
            # an answer's tokens are used when it ends: what a start uses at once is its prompt
            self._tokens.next_at(prompt_tokens, now),
        )

    def started(self, now: float, prompt_tokens: float) -> None:
        """A request is sent."""
        self._begun_at = now if self._begun_at is None else self._begun_at
        self._requests.use(1, now)
        self._requests.pass_on(1, now)
        self._tokens.use(prompt_tokens, now)
        self._prompts.use(prompt_tokens, now)

    def accepted(self) -> None:
        """It was taken: an answer has begun."""
        if self._open < self._ceiling:
            self._open += 1

    def finished(self, now: float, completion_tokens: int, took_s: float) -> None:
        """It was answered (or broke off) after `took_s` seconds."""
        self._tokens.use(completion_tokens, now)
        if took_s <= 0 or completion_tokens <= 0:
            return
        # of all the time that streams were open: a mean of the answers' speeds would be that of the short ones, which are slow
        self._tokens_made = self._tokens_made * SPEED_KEPT + completion_tokens
        self._stream_s = self._stream_s * SPEED_KEPT + took_s

    def note_headers(self, headers: Mapping[str, str]) -> None:
        """Limits that an answer tells: `x-ratelimit-limit-requests`, `x-ratelimit-limit-tokens`."""
        for name, meter in (("requests", self._requests), ("tokens", self._tokens)):
            found = headers.get(f"x-ratelimit-limit-{name}", "")
            if re.fullmatch(r"\d{1,15}", found) and int(found) > 0:
                meter.told = int(found)

    def refused(
        self,
        now: float,
        *,
        started_at: float,
        prompt_tokens: float,
        in_flight: int,
        retry_after_s: float | None,
        resource: Resource | None,
    ) -> None:
        """HTTP 429. `in_flight`: how many others the API works on; `resource`: what it says there is too much of."""
        # it has used nothing
        self._requests.use(-1, now)
        self._tokens.use(-prompt_tokens, now)
        self._prompts.use(-prompt_tokens, now)
        self._held_until = max(self._held_until, now + (LEAST_WAIT_S if retry_after_s is None else retry_after_s))
        if started_at <= self._last_cut_at:
            return  # sent before the last cut: it tells nothing about what holds since
        meter = self._to_blame(resource)
        if resource is not Resource.CONCURRENCY and meter.is_nearly_used():
            return  # the count foresaw it, but for what the API has counted and we have not seen yet
        self._last_cut_at = self._last_change_at = now
        if resource is Resource.CONCURRENCY:
            self._ceiling = self._open = max(1.0, in_flight * CONCURRENCY_CUT)
            return
        if meter.configured is None and meter.told is None:
            covered_s = min(WINDOW_S, max(BIN_S, now - (started_at if self._begun_at is None else self._begun_at)))
            used = max(1.0, meter.used) * WINDOW_S / covered_s  # within the first minute: as if it had gone on like that
            meter.learnt = used if meter.learnt is None else min(meter.learnt, used)
        else:
            meter.pace = max(LEAST_PACE, meter.pace * PACE_CUT)

    def _to_blame(self, resource: Resource | None) -> Meter:
        """Whose limit a refusal is about; where it does not say, the one that is nearest to its own."""
        if resource is not None:
            return self._tokens if resource is Resource.TOKENS else self._requests
        known = [meter for meter in (self._requests, self._tokens) if meter.limit is not None]
        return max(known, key=lambda meter: meter.used / (meter.limit or 1.0), default=self._requests)

    def _recover(self, now: float) -> None:
        """What refusals took is given back little by little while none comes."""
        if now - self._last_change_at < PACE_GROWS_AFTER_S or self._last_cut_at < 0:
            return
        calm_s, self._last_change_at = now - self._last_change_at, now
        for meter in (self._requests, self._tokens):
            meter.pace = min(PACE, meter.pace + PACE_STEP)
            if meter.learnt is not None:
                meter.learnt *= LIMIT_STEP ** (calm_s / LIMIT_GROWS_AFTER_S)
        self._ceiling = min(self._most, self._ceiling * LIMIT_STEP ** (calm_s / LIMIT_GROWS_AFTER_S))


def resource_of(words: str, headers: Mapping[str, str]) -> Resource | None:
    """What a refusal says there is too much of; None where it does not say."""
    text = words.lower()
    if re.search(r"concurren|parallel|simultaneous", text):
        return Resource.CONCURRENCY
    for resource in (Resource.TOKENS, Resource.REQUESTS):
        if headers.get(f"x-ratelimit-remaining-{resource}") == "0":
            return resource
    if re.search(r"\btokens?\b|\btpm\b", text):
        return Resource.TOKENS
    if re.search(r"\brequests per\b|\brpm\b", text):
        return Resource.REQUESTS
    return None


def _whole(limit: float | None) -> int | None:
    return None if limit is None else int(limit)
