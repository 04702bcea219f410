"""An API's limits are used nearly whole, learnt where nobody tells them, and obeyed where they are told."""

from __future__ import annotations

import heapq
import random
from collections import deque
from dataclasses import dataclass

import pytest

from backend.job.api_rate import FIRST_CONCURRENCY, ApiRate, Resource, resource_of

WINDOW_S = 60.0
PROMPT_TOKENS = 80
FIRST_TOKEN_S = 2.0  # an answer's speed from start to end hangs on its length


class Minute:
    """An API that counts a sliding minute: prompts when they come, answers when they end."""

    def __init__(self, requests: int | None, tokens: int | None) -> None:
        self.limits = (requests, tokens)
        self.used: tuple[deque[tuple[float, float]], ...] = (deque(), deque())
        self.sums = [0.0, 0.0]

    def admit(self, now: float) -> bool:
        for index, amount in enumerate((1, PROMPT_TOKENS)):
            self.forget(index, now)
            limit = self.limits[index]
            if limit is not None and self.sums[index] + amount > limit:
                return False
        for index, amount in enumerate((1, PROMPT_TOKENS)):
            self.add(index, now, amount)
        return True

    def add(self, index: int, now: float, amount: float) -> None:
        self.used[index].append((now, amount))
        self.sums[index] += amount

    def forget(self, index: int, now: float) -> None:
        while self.used[index] and self.used[index][0][0] <= now - WINDOW_S:
            self.sums[index] -= self.used[index].popleft()[1]


@dataclass
class Driven:
    """What came of minutes of driving."""

    tokens_per_minute: float
    requests_per_minute: float
    refused: int
    most_in_flight: int


def drive(
    rate: ApiRate, server: Minute, *, minutes: float, warm_minutes: float, slots: int = 1_000, tell: bool, seed: int = 1
) -> Driven:
    """Virtual time: answers of 1,000 tokens on average at 50 tokens/s, each start as soon as `rate` allows it.

    The end of an answer is seen a little after the API has counted it.
    """
    rng = random.Random(seed)
    ends: list[tuple[float, int]] = []  # at the API
    seen: list[tuple[float, int]] = []  # here
    now, tokens, requests, refused, most = 0.0, 0.0, 0, 0, 0
    while now < minutes * 60:
        while ends and ends[0][0] <= now:
            ended_at, length = heapq.heappop(ends)
            server.add(1, ended_at, length)
            heapq.heappush(seen, (ended_at + rng.uniform(0.05, 0.5), length))
            if ended_at > warm_minutes * 60:
                tokens += length
        while seen and seen[0][0] <= now:
            seen_at, length = heapq.heappop(seen)
            rate.finished(seen_at, length, FIRST_TOKEN_S + length / 50)
        at = rate.next_start_at(now, PROMPT_TOKENS)
        if len(ends) + len(seen) < min(slots, rate.concurrency) and at <= now:
            rate.started(now, PROMPT_TOKENS)
            if server.admit(now):
                rate.accepted()
                if tell and server.limits[1]:
                    rate.note_headers({"x-ratelimit-limit-tokens": str(server.limits[1])})
                length = max(1, int(rng.lognormvariate(6.41, 1.0)))
                heapq.heappush(ends, (now + FIRST_TOKEN_S + length / 50, length))
                most = max(most, len(ends))
                if now > warm_minutes * 60:
                    tokens += PROMPT_TOKENS
                    requests += 1
            else:
                refused += now > warm_minutes * 60
                rate.refused(
                    now, started_at=now, prompt_tokens=PROMPT_TOKENS, in_flight=len(ends), retry_after_s=1.0, resource=None
                )
            continue
        now = min([max(at, now + 0.02), *(queue[0][0] for queue in (ends, seen) if queue)])
    measured = minutes - warm_minutes
    return Driven(tokens / measured, requests / measured, refused, most)


@pytest.mark.parametrize("seed", range(3))
def test_of_a_told_limit_of_tokens_at_least_95_percent_are_used(seed: int) -> None:
    driven = drive(ApiRate(), Minute(None, 2_000_000), minutes=6, warm_minutes=2, tell=True, seed=seed)
    assert driven.tokens_per_minute >= 0.95 * 2_000_000
    assert driven.refused <= 60


def test_a_limit_that_nobody_tells_is_learnt_from_refusals() -> None:
    driven = drive(ApiRate(), Minute(600, None), minutes=12, warm_minutes=4, tell=False)
    assert 0.9 * 600 <= driven.requests_per_minute <= 601


def test_a_configured_limit_is_kept_without_a_refusal() -> None:
    driven = drive(ApiRate(requests_per_minute=300), Minute(300, None), minutes=5, warm_minutes=0, tell=False)
    assert driven.refused == 0
    assert driven.requests_per_minute >= 0.93 * 300


def test_without_limits_every_stream_is_used() -> None:
    driven = drive(ApiRate(), Minute(None, None), minutes=2, warm_minutes=1, tell=False)
    assert driven.most_in_flight == 1_000


def test_the_concurrency_begins_small_and_grows_with_each_answer_that_begins() -> None:
    rate = ApiRate(concurrency=100)
    assert rate.concurrency == FIRST_CONCURRENCY
    for _ in range(200):
        rate.accepted()
    assert rate.concurrency == 100


def test_too_many_at_once_lowers_the_concurrency_and_calm_raises_it_again() -> None:
    rate = ApiRate(concurrency=100)
    for _ in range(100):
        rate.accepted()
    rate.refused(10, started_at=9, prompt_tokens=1, in_flight=50, retry_after_s=None, resource=Resource.CONCURRENCY)
    assert rate.concurrency == 45
    for minute in range(1, 100):
        rate.next_start_at(10 + 60 * minute, 1)
        for _ in range(50):
            rate.accepted()
    assert rate.concurrency == 100


def test_nothing_starts_before_the_time_that_the_api_asked_for() -> None:
    rate = ApiRate()
    rate.refused(100, started_at=99, prompt_tokens=1, in_flight=1, retry_after_s=7, resource=None)
    assert rate.next_start_at(100, 1) == 107
    assert rate.view(100).held_until == 107
    assert rate.view(108).held_until is None


def test_a_thousand_refusals_of_one_moment_are_one_lesson() -> None:
    rate = ApiRate(requests_per_minute=6_000)
    for _ in range(1_000):
        rate.refused(100, started_at=99.9, prompt_tokens=1, in_flight=1, retry_after_s=None, resource=Resource.REQUESTS)
    once = ApiRate(requests_per_minute=6_000)
    once.refused(100, started_at=99.9, prompt_tokens=1, in_flight=1, retry_after_s=None, resource=Resource.REQUESTS)
    for each in (rate, once):
        each.started(101, 1)
    assert rate.next_start_at(200, 1) == once.next_start_at(200, 1)
    assert rate.view(200).requests_per_minute == 6_000


def test_a_lower_limit_of_ones_own_is_kept_whatever_the_api_tells() -> None:
    rate = ApiRate(tokens_per_minute=1_000)
    rate.note_headers({"x-ratelimit-limit-tokens": "5000", "x-ratelimit-limit-requests": "nonsense"})
    assert rate.view(0).tokens_per_minute == 1_000
    assert rate.view(0).requests_per_minute is None


@pytest.mark.parametrize(
    ("words", "headers", "resource"),
    [
        ("Rate limit reached for gpt on tokens per min (TPM): Limit 30000", {}, Resource.TOKENS),
        ("Rate limit reached on requests per min", {}, Resource.REQUESTS),
        ("Too many concurrent requests", {}, Resource.CONCURRENCY),
        ("slow down", {"x-ratelimit-remaining-tokens": "0"}, Resource.TOKENS),
        ("slow down", {}, None),
    ],
)
def test_a_refusal_says_what_there_is_too_much_of(words: str, headers: dict[str, str], resource: Resource | None) -> None:
    assert resource_of(words, headers) is resource
