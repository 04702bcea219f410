"""Who gets the next slot, and when a dataset has had enough: exact counts against `max_samples`, reservations against a budget.

Pure: no clock, no I/O; times come from the caller (any clock in seconds that does not go back). How long answers will be is
learnt in `lengths_so_far.py`; sending, aborting and keeping prompts is the driver's work.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

from backend.config import AtBudget
from backend.job.lengths_so_far import LengthsSoFar, Outlook
from backend.job.token_clock import TokenClock
from backend.records import DoneReason

PRIOR_MEAN_TOKENS: Final = 1000.0
RESUMED_WEIGHT: Final = 50.0  # samples that a former life's mean is worth at most, where only its sums are known
CAUTION: Final = 2.0  # standard deviations of what is in flight that are kept free while a budget is approached
COMMON_VARIANCE: Final = 4.0  # relative, of the expected length, over 2 + the finished samples that tell of it
REFRESH_S: Final = 1.0
FAR_REFRESH_S: Final = 30.0  # while the budget left is many times what is in flight
FAR: Final = 4.0
REFRESH_CHANGES: Final = 16  # starts and ends after which the reservations are computed anew, whatever the time


@dataclass(frozen=True, slots=True)
class Limits:
    """What bounds one dataset; None: nothing does."""

    token_budget: int | None = None  # completion tokens
    max_samples: int | None = None
    at_budget: AtBudget = AtBudget.DRAIN


class DatasetAdmission:
    """Accounting of one dataset: what is finished, what is in flight and what that will come to."""

    def __init__(
        self,
        limits: Limits,
        *,
        finished_samples: int = 0,
        finished_tokens: int = 0,
        max_new_tokens: int | None = None,
        prior_mean_tokens: float = PRIOR_MEAN_TOKENS,
        finished_lengths: Iterable[int] = (),
    ) -> None:
        """Counts are of durable samples of former lives; `finished_lengths` are some of their lengths, for learning only."""
        self.limits = limits
        self.finished_samples = finished_samples
        self.finished_tokens = finished_tokens
        resumed = finished_samples > 0 and finished_tokens > 0
        prior_mean = finished_tokens / finished_samples if resumed else prior_mean_tokens
        if max_new_tokens is not None:
            prior_mean = min(prior_mean, max_new_tokens if resumed else max_new_tokens / 2)
        lengths = list(finished_lengths)
        weight = min(max(finished_samples, 4), RESUMED_WEIGHT) if resumed and not lengths else 4.0
        self._lengths = LengthsSoFar(cap_tokens=max_new_tokens, prior_mean_tokens=prior_mean, prior_weight=weight)
        for tokens in lengths:
            self._lengths.add(tokens)
        self._samples_resumed = 0 if lengths else finished_samples  # whose lengths only the prior knows
        self._clock = TokenClock()
        self._started_at: dict[Hashable, float] = {}  # the clock's reading at the start, oldest first
        self._outlook = Outlook(0.0, 0.0, 0.0)
        self._outlook_at = -math.inf
        self._changes = 0

    @property
    def in_flight(self) -> int:
        """How many requests are in flight."""
        return len(self._started_at)

    @property
    def mean_tokens(self) -> float:
        """Expected completion tokens of a request not yet started."""
        return self._lengths.mean_tokens

    @property
    def cap_tokens(self) -> int | None:
        """The most completion tokens of a request not yet started."""
        return self._lengths.cap_tokens

    def set_limits(self, limits: Limits) -> None:
        """Other limits from now on, in either direction."""
        self.limits = limits

    def set_cap(self, max_new_tokens: int | None) -> None:
        """Another cap for requests to come."""
        if max_new_tokens != self._lengths.cap_tokens:
            self._lengths = self._lengths.with_cap(max_new_tokens)
            self._changes = REFRESH_CHANGES

    def made_tokens(self, now: float) -> list[float]:
        """How many tokens each request in flight has made so far, as the clock reckons; oldest first."""
        reading, scale = self._clock.advance(now), self._clock.scale
        return [(reading - at) * scale for at in self._started_at.values()]

    def started(self, key: Hashable, now: float) -> None:
        """A request was sent. Raises ValueError where that key is in flight already: two requests would make one sample."""
        if key in self._started_at:
            raise ValueError(f"request {key!r} is in flight already")
        self._started_at[key] = self._clock.advance(now)
        self._reserve(1, self._lengths.mean_tokens, 0.0, self._lengths.variance)

    def finished(self, key: Hashable, now: float, completion_tokens: int) -> None:
        """A request in flight became a durable sample. Raises KeyError for a key that is not in flight."""
        started_at = self._release(key, now)
        self.finished_samples += 1
        self.finished_tokens += completion_tokens
        self._lengths.add(completion_tokens)
        self._clock.learn(started_at, completion_tokens)

    def begins_anew(self, key: Hashable, now: float) -> float:
        """A request in flight is sent again from its beginning. Returns the tokens that were made in vain."""
        started_at = self._started_at[key]
        self._started_at[key] = self._clock.advance(now)
        self._changes += 1
        return (self._started_at[key] - started_at) * self._clock.scale

    def given_back(self, key: Hashable, now: float) -> None:
        """A request in flight ended without a sample; its prompt will be admitted again. Raises KeyError as `finished` does."""
        self._release(key, now)

    def forget_sample(self, completion_tokens: int) -> None:
        """A durable sample was superseded (redo): it no longer counts against the limits, its length is still a length."""
        self.finished_samples -= 1
        self.finished_tokens -= completion_tokens

    def may_admit(self, now: float, speed_tokens_per_s: float | None = None) -> bool:
        """Whether the limits allow one more request.

        `speed_tokens_per_s` is what one request makes now (the server's decode tokens/s over the requests in flight); None:
        unknown, the last one known goes on. It tells how far requests in flight have come where the batch shrinks or grows.
        """
        self._clock.advance(now)
        if speed_tokens_per_s is not None:
            factor = self._clock.set_speed(speed_tokens_per_s)
            if factor != 1.0:
                self._started_at = {key: reading * factor for key, reading in self._started_at.items()}
        limits = self.limits
        if limits.max_samples is not None and self.finished_samples + self.in_flight >= limits.max_samples:
            return False
        if limits.token_budget is None:
            return True
        if limits.at_budget is AtBudget.CANCEL:
            return self.finished_tokens < limits.token_budget
        if self.finished_samples + self.in_flight == 0:
            return True  # even a budget below one answer gets one
        free = limits.token_budget - self.expected_tokens(now) - self._lengths.mean_tokens / 2
        return free >= self._margin_tokens()

    def expected_tokens(self, now: float) -> float:
        """What finished and in-flight requests will have made together once nothing is in flight."""
        if self._started_at and self._is_stale(now):
            reading, scale = self._clock.advance(now), self._clock.scale
            self._outlook = self._lengths.outlook((reading - at) * scale for at in self._started_at.values())
            self._outlook_at = now
            self._changes = 0
        return self.finished_tokens + self._outlook.expected_tokens

    def limit_reached(self, now: float) -> DoneReason | None:
        """The limit that ends the dataset; None while something is in flight or one more request would be admitted."""
        if self._started_at or self.may_admit(now):
            return None
        limits = self.limits
        at_samples = limits.max_samples is not None and self.finished_samples >= limits.max_samples
        return DoneReason.SAMPLES if at_samples else DoneReason.BUDGET

    def to_cancel(self) -> tuple[Hashable, ...]:
        """Requests to abort because the budget is spent and `at_budget` says cancel; oldest first."""
        limits = self.limits
        if limits.at_budget is not AtBudget.CANCEL or limits.token_budget is None:
            return ()
        return tuple(self._started_at) if self.finished_tokens >= limits.token_budget else ()

    def _is_stale(self, now: float) -> bool:
        budget = self.limits.token_budget
        reserved = max(self._outlook.expected_tokens, self.in_flight * self._lengths.mean_tokens)
        if budget is not None and budget - self.finished_tokens > FAR * reserved:
            return now - self._outlook_at >= FAR_REFRESH_S or self._changes >= max(REFRESH_CHANGES, 2 * self.in_flight)
        return now - self._outlook_at >= REFRESH_S or self._changes >= REFRESH_CHANGES

    def _release(self, key: Hashable, now: float) -> float:
        """Take a request out of flight, its reservation with it. Returns the clock's reading at its start."""
        started_at = self._started_at.pop(key)
        if not self._started_at:
            self._outlook = Outlook(0.0, 0.0, 0.0)
            self._changes = REFRESH_CHANGES
            return started_at
        made = (self._clock.advance(now) - started_at) * self._clock.scale
        variance = self._outlook.variance / (len(self._started_at) + 1)
        self._reserve(-1, self._lengths.expected_tokens(made), made, variance)
        return started_at

    def _reserve(self, sign: int, expected: float, made: float, variance: float) -> None:
        """Carry a start or an end over into the reservations, until they are computed anew."""
        old = self._outlook
        self._outlook = Outlook(
            max(old.expected_tokens + sign * expected, 0.0),
            max(old.made_tokens + sign * made, 0.0),
            max(old.variance + sign * variance, 0.0),
        )
        self._changes += 1

    def _margin_tokens(self) -> float:
        """Tokens kept free: what is in flight may come out longer, each by chance and all together while little is learnt."""
        if not self._started_at:
            return 0.0
        to_come = self._outlook.expected_tokens - self._outlook.made_tokens
        shared = to_come * to_come * COMMON_VARIANCE / (self._samples_resumed + self._lengths.telling + 2)
        return CAUTION * math.sqrt(self._outlook.variance + shared)


class View(Protocol):
    """What the choice between datasets needs to know of one of them; properties may compute it when asked."""

    @property
    def may_admit(self) -> bool:
        """Whether its state and its limits allow one more request."""

    @property
    def prompt_ready(self) -> bool:
        """Whether it has a prompt that can be sent now."""

    @property
    def samples_begun(self) -> int:
        """Samples that are finished or in flight."""


@dataclass(frozen=True, slots=True)
class Turn:
    """Who gets a free slot. `pilot`: before its turn, so that what its samples are like is known early."""

    dataset: str
    pilot: bool = False


def next_dataset(order: Sequence[str], views: Mapping[str, View], pilot_samples: int = 0) -> Turn | None:
    """The dataset that gets the free slot: the first in order that may admit and has a prompt ready. None: leave it free.

    Before that, each dataset after the first one gets its pilot: `pilot_samples` requests, made or in flight.
    """
    known = [(name, views[name]) for name in order if name in views]
    first = next((i for i, (_, view) in enumerate(known) if view.may_admit and view.prompt_ready), None)
    if first is None:
        return None
    for name, view in known[first + 1 :]:
        if view.samples_begun < pilot_samples and view.may_admit and view.prompt_ready:
            return Turn(name, pilot=True)
    return Turn(known[first][0])
