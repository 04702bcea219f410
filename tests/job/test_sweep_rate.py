"""A rate from counters: what it is, and how often its interval holds."""

from __future__ import annotations

import math
import random

import pytest

from backend.job.sweep_rate import CounterMeter


def walk(seed: int, seconds: int, *, movement: float, memory_s: float) -> CounterMeter:
    """A counter that grows by 100 a second on average, each second looked at; speed moves with a memory."""
    rng, off, tokens = random.Random(seed), 0.0, 0.0
    kept = math.exp(-1 / memory_s) if memory_s else 0.0
    off = rng.gauss(0, movement)
    meter = CounterMeter(["0"])
    for second in range(seconds + 1):
        meter.add("0", float(second), tokens)
        off = kept * off + rng.gauss(0, movement * math.sqrt(1 - kept**2))
        tokens += 100 * (1 + off)
    return meter


def share_that_holds(**kind: float) -> float:
    held = 0
    for seed in range(200):
        rate = walk(seed, 60, **kind).rate()
        assert rate is not None
        assert rate.half_width is not None
        held += abs(rate.tokens_per_s - 100) <= rate.half_width
    return held / 200


def test_the_rate_is_what_the_counter_grew_by() -> None:
    rate = walk(1, 20, movement=0, memory_s=0).rate()
    assert rate is not None
    assert (rate.tokens_per_s, rate.half_width, rate.measured_s) == (pytest.approx(100), pytest.approx(0, abs=1e-9), 20)
    assert rate.is_known_within(0.03)


def test_the_interval_holds_nine_times_of_ten_and_also_where_seconds_resemble_each_other() -> None:
    assert share_that_holds(movement=0.1, memory_s=0) >= 0.93
    assert share_that_holds(movement=0.1, memory_s=3) >= 0.88
    assert share_that_holds(movement=0.1, memory_s=8) >= 0.80


def test_too_few_looks_make_a_rate_without_an_interval() -> None:
    rate = walk(1, 5, movement=0.1, memory_s=0).rate()
    assert rate is not None
    assert rate.half_width is None
    assert not rate.is_known_within(1.0)


def test_nothing_is_known_before_every_replica_was_looked_at_twice() -> None:
    meter = CounterMeter(["0", "1"])
    for second in range(3):
        meter.add("0", second, 10.0 * second)
    assert meter.rate() is None
    meter.add("1", 1.0, 500.0)
    assert meter.rate() is None
    meter.add("1", 2.0, 520.0)
    rate = meter.rate()
    assert rate is not None
    assert (rate.tokens_per_s, rate.measured_s) == (pytest.approx(30), pytest.approx(1))


def test_the_same_publication_seen_twice_is_one_look() -> None:
    meter = CounterMeter(["0"])
    for at_s, tokens in ((0.0, 0.0), (0.2, 0.0), (2.0, 200.0), (2.3, 200.0), (1.0, 100.0)):
        meter.add("0", at_s, tokens)
    rate = meter.rate()
    assert rate is not None
    assert (rate.tokens_per_s, rate.measured_s) == (100, 2)


def test_a_counter_that_comes_only_every_few_seconds_is_looked_at_when_it_comes() -> None:
    held, live = CounterMeter(["0"]), CounterMeter(["0"])
    for second in range(13):
        tokens = 100.0 * (second // 5 * 5)  # the last one came at second 10
        held.add("0", second, tokens, held=True)
        live.add("0", second, tokens)
    told = (held.rate(), live.rate())
    assert told[0] is not None
    assert told[1] is not None
    assert told[0].tokens_per_s == 100
    assert told[1].tokens_per_s < 90
