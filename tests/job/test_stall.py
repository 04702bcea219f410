"""When a replica counts as stalled, and when not."""

from __future__ import annotations

from backend.job.stall import StallWatch, Verdict


def _watch(**overrides: object) -> Verdict:
    """The verdict after 100 s of the same observation, with a limit of 60 s."""
    watch = StallWatch(60.0)
    seen: dict[str, object] = {"in_flight": 5, "generated_tokens": 10.0, "answered": 0, "engine_requests": 5}
    verdict = Verdict.MOVING
    for second in range(101):
        values = {**seen, **{k: v(second) if callable(v) else v for k, v in overrides.items()}}
        verdict = watch.feed(float(second), **values)  # type: ignore[arg-type]
    return verdict


def test_work_and_no_movement_is_a_stall() -> None:
    assert _watch() is Verdict.STALLED


def test_no_work_is_no_stall() -> None:
    assert _watch(in_flight=0) is Verdict.MOVING


def test_tokens_are_movement() -> None:
    assert _watch(generated_tokens=float) is Verdict.MOVING


def test_answers_are_movement_where_tokens_cannot_be_read() -> None:
    assert _watch(generated_tokens=None, answered=int) is Verdict.MOVING


def test_a_counter_that_was_reset_is_movement() -> None:
    assert _watch(generated_tokens=lambda second: 1000.0 if second < 70 else 3.0) is Verdict.MOVING


def test_an_unreadable_counter_is_no_movement() -> None:
    assert _watch(generated_tokens=lambda second: 10.0 if second % 2 else None) is Verdict.STALLED


def test_requests_that_the_server_knows_nothing_of_are_lost_once_and_then_it_is_a_stall() -> None:
    watch = StallWatch(10.0)
    verdicts = [
        watch.feed(float(second), in_flight=2, generated_tokens=5.0, answered=0, engine_requests=0) for second in range(30)
    ]
    assert verdicts == [Verdict.MOVING] * 10 + [Verdict.LOST_REQUESTS] + [Verdict.MOVING] * 9 + [Verdict.STALLED] * 10


def test_requests_are_lost_again_after_a_movement() -> None:
    watch = StallWatch(10.0)
    verdicts = [
        watch.feed(float(second), in_flight=2, generated_tokens=second // 15, answered=0, engine_requests=0)
        for second in range(60)
    ]
    assert verdicts.count(Verdict.LOST_REQUESTS) == 4
    assert Verdict.STALLED not in verdicts


def test_requests_that_leave_the_engine_a_moment_after_the_last_token_are_lost() -> None:
    watch = StallWatch(10.0)
    for second in range(5):
        watch.feed(float(second), in_flight=2, generated_tokens=float(second), answered=0, engine_requests=2)
    verdicts = [
        watch.feed(5.0 + second, in_flight=2, generated_tokens=4.0, answered=0, engine_requests=0) for second in range(10)
    ]
    assert verdicts[-1] is Verdict.LOST_REQUESTS


def test_a_server_that_was_busy_until_a_moment_ago_has_not_lost_requests() -> None:
    assert _watch(engine_requests=lambda second: 5 if second < 90 else 0) is Verdict.STALLED


def test_the_limit_counts_from_the_last_movement() -> None:
    watch = StallWatch(60.0)
    watch.feed(0.0, in_flight=1, generated_tokens=1.0, answered=0, engine_requests=1)
    watch.feed(50.0, in_flight=1, generated_tokens=2.0, answered=0, engine_requests=1)

    assert watch.feed(109.0, in_flight=1, generated_tokens=2.0, answered=0, engine_requests=1) is Verdict.MOVING
    assert watch.feed(110.0, in_flight=1, generated_tokens=2.0, answered=0, engine_requests=1) is Verdict.STALLED
