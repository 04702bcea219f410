"""Continuous batching on a clock of the test's own."""

from __future__ import annotations

import itertools
import random

import pytest

from backend.simulator.batching import Scheduler
from backend.simulator.curve import DEFAULT_CURVE, SpeedCurve
from backend.simulator.prefix_cache import PrefixCache
from backend.simulator.sequences import FinishKind, Sequence

_numbers = itertools.count()


def make_scheduler(**changes: object) -> Scheduler:
    given: dict[str, object] = {
        "curve": SpeedCurve.parse(DEFAULT_CURVE),
        "speed": 1.0,
        "prefill_tokens_per_s": 1e12,
        "max_running": 256,
        "max_queued": None,
        "pool_tokens": 10**9,
        "prefix_cache": PrefixCache(enabled=False),
        "now": 0.0,
    }
    return Scheduler(**(given | changes))  # type: ignore[arg-type]


def make_sequence(target: int, *, prompt: int = 10, cap: int = 4096, at: float = 0.0) -> Sequence:
    return Sequence(f"r{next(_numbers)}", prompt, target, FinishKind.STOP, cap, at)


@pytest.mark.parametrize("count", [1, 4, 6, 8, 16, 32, 48, 100])
def test_n_running_requests_make_the_tokens_per_second_of_the_curve(count: int) -> None:
    scheduler = make_scheduler()
    for _ in range(count):
        scheduler.submit(make_sequence(1_000_000, cap=1_000_000), 0.0)
    scheduler.advance(100.0)
    assert scheduler.decoded_total / 100 == pytest.approx(scheduler.curve.at(count), rel=0.02)


def test_a_request_ends_at_its_exact_moment_however_rarely_the_clock_is_read() -> None:
    scheduler = make_scheduler(curve=SpeedCurve.parse("1:10,2:16"))
    first, second = make_sequence(101), make_sequence(201)
    scheduler.submit(first, 0.0)
    scheduler.submit(second, 0.0)
    finished = scheduler.advance(1000.0)
    # both at 8 tokens/s until the first has its 100 decoded tokens, then the other alone at 10
    assert finished == [first, second]
    assert first.finished_at == pytest.approx(12.5)
    assert second.finished_at == pytest.approx(12.5 + 10)


def test_speed_makes_everything_faster() -> None:
    scheduler = make_scheduler(speed=200.0)
    sequence = make_sequence(6201, cap=10_000)
    scheduler.submit(sequence, 0.0)
    scheduler.advance(10.0)
    assert sequence.finished_at == pytest.approx(100 / 200)


def test_prefill_takes_its_time_and_holds_decoding() -> None:
    scheduler = make_scheduler(prefill_tokens_per_s=100.0)
    first, second = make_sequence(1000, prompt=100), make_sequence(1000, prompt=200)
    scheduler.submit(first, 0.0)
    scheduler.advance(2.0)
    assert first.first_token_at == pytest.approx(1.0)
    before = scheduler.generated_of(first)
    scheduler.submit(second, 2.0)
    scheduler.advance(3.9)
    assert scheduler.generated_of(first) == before
    scheduler.advance(5.0)
    assert second.first_token_at == pytest.approx(4.0)
    assert scheduler.generated_of(first) > before


def test_no_more_than_max_running_run_and_the_others_wait_in_order() -> None:
    scheduler = make_scheduler(max_running=2)
    sequences = [make_sequence(100) for _ in range(4)]
    for sequence in sequences:
        scheduler.submit(sequence, 0.0)
    scheduler.advance(0.001)
    assert scheduler.running_count == 2
    assert list(scheduler.waiting) == sequences[2:]
    scheduler.advance(1e6)
    assert [one.finished_at for one in sequences] == sorted(one.finished_at or 0 for one in sequences)


def test_a_full_queue_refuses() -> None:
    scheduler = make_scheduler(max_running=1, max_queued=1)
    for _ in range(2):
        assert scheduler.submit(make_sequence(100), 0.0) == []
    (refused,) = scheduler.submit(make_sequence(100), 0.0)
    assert refused.finish is not None
    assert refused.finish.status == 503


def test_a_full_pool_retracts_the_shortest_and_all_finish_in_the_end() -> None:
    scheduler = make_scheduler(pool_tokens=3000)
    sequences = [make_sequence(900, prompt=50, cap=1000, at=0.0) for _ in range(6)]
    for sequence in sequences:
        scheduler.submit(sequence, 0.0)
    peak = 0
    clock = 0.0
    while not scheduler.idle:
        clock += 0.5
        scheduler.advance(clock)
        peak = max(peak, scheduler.used_tokens)
        assert clock < 1e4
    assert peak <= 3000
    assert scheduler.totals.retracted >= 1
    assert scheduler.totals.retracted == sum(one.retractions for one in sequences)
    assert all(one.generated == 900 and one.finish is not None for one in sequences)
    assert scheduler.retract_reports


def test_a_request_larger_than_the_pool_is_aborted_with_500() -> None:
    scheduler = make_scheduler(pool_tokens=500)
    sequence = make_sequence(1000, prompt=50)
    scheduler.submit(sequence, 0.0)
    scheduler.advance(1e5)
    assert sequence.finish is not None
    assert (sequence.finish.kind, sequence.finish.status) == (FinishKind.ABORT, 500)


def test_an_abort_keeps_the_tokens_so_far() -> None:
    scheduler = make_scheduler()
    sequence = make_sequence(1000)
    scheduler.submit(sequence, 0.0)
    assert sequence in scheduler.abort(sequence, 5.0)
    assert sequence.generated == pytest.approx(5 * 62 + 1, abs=1)
    assert scheduler.decoded_total == sequence.generated - 1
    assert scheduler.used_tokens == 0


def test_an_abort_in_the_queue_says_so() -> None:
    scheduler = make_scheduler(max_running=1)
    scheduler.submit(make_sequence(1000), 0.0)
    waiting = make_sequence(1000)
    scheduler.submit(waiting, 0.0)
    scheduler.abort(waiting, 1.0)
    assert waiting.finish is not None
    assert waiting.finish.message == "Abort in waiting queue"


@pytest.mark.parametrize("prefill", [1e12, 10.0])
def test_a_halt_takes_no_simulated_time(prefill: float) -> None:
    ends = []
    for pause in (0.0, 500.0):
        scheduler = make_scheduler(prefill_tokens_per_s=prefill)
        sequence = make_sequence(1000, prompt=20)
        scheduler.submit(sequence, 0.0)
        scheduler.halt(1.0)
        scheduler.advance(1.0 + pause / 2)
        scheduler.go_on(1.0 + pause)
        scheduler.advance(1e4)
        assert sequence.finished_at is not None
        ends.append(sequence.finished_at - pause)
    assert ends[0] == pytest.approx(ends[1])


def test_requests_sent_back_to_the_queue_keep_their_tokens() -> None:
    scheduler = make_scheduler()
    sequence = make_sequence(500)
    scheduler.submit(sequence, 0.0)
    scheduler.halt(2.0)
    scheduler.requeue_running(2.0)
    assert sequence.generated == 125
    assert list(scheduler.waiting) == [sequence]
    scheduler.go_on(10.0)
    scheduler.advance(1e3)
    assert sequence.generated == 500


def test_the_counters_add_up_over_a_random_life() -> None:
    rng = random.Random(8)
    scheduler = make_scheduler(pool_tokens=20_000, max_running=24, prefill_tokens_per_s=5000.0)
    sequences: list[Sequence] = []
    clock = 0.0
    for _ in range(300):
        clock += rng.expovariate(2.0)
        sequence = make_sequence(rng.randrange(1, 900), prompt=rng.randrange(1, 300), cap=1000, at=clock)
        sequences.append(sequence)
        scheduler.submit(sequence, clock)
        if rng.random() < 0.1:
            scheduler.abort(rng.choice(sequences), clock)
    scheduler.advance(1e6)
    assert scheduler.idle
    assert scheduler.used_tokens == 0
    assert all(one.finish is not None for one in sequences)
    prefilled = sum(1 + one.retractions for one in sequences if one.first_token_at is not None)
    assert scheduler.decoded_total == pytest.approx(
        sum(one.generated for one in sequences) - prefilled, abs=scheduler.totals.retracted
    )
    assert scheduler.totals.moments[5] == pytest.approx(scheduler.decoded_total, rel=0.01)


def test_counters_that_are_reset_start_at_zero_and_count_on() -> None:
    scheduler = make_scheduler()
    scheduler.submit(make_sequence(1000), 0.0)
    scheduler.advance(5.0)
    scheduler.reset_totals()
    assert scheduler.decoded_total == 0
    scheduler.advance(10.0)
    assert scheduler.decoded_total == pytest.approx(5 * 62, abs=1)


def test_a_prompt_seen_before_is_cached_up_to_its_last_token() -> None:
    cache = PrefixCache()
    prompt = "a" * 640
    blocks = cache.blocks_of(prompt)
    assert cache.match(blocks, 640, 100) == 0
    cache.remember(blocks)
    assert cache.match(blocks, 640, 100) == 99
    half = cache.blocks_of("a" * 320 + "b" * 320)
    assert cache.match(half, 640, 100) == 50
