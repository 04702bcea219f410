"""Conditions are told once; a throughput that fell is noticed, a smaller load is not."""

from __future__ import annotations

from backend.job.alarms import Alarms, ThroughputWatch
from backend.records import Severity


def test_a_condition_is_told_when_it_begins_and_when_it_is_over() -> None:
    alarms = Alarms()
    told = [alarms.update(float(at), "disk", "run", problem, over="Room again.") for at, problem in enumerate(["full"] * 3)]
    over = alarms.update(9.0, "disk", "run", None, over="Room again.")
    assert [len(events) for events in told] == [1, 0, 0]
    assert (told[0][0].kind, told[0][0].message, told[0][0].severity) == ("disk", "full", Severity.WARNING)
    assert [(event.kind, event.message, event.at) for event in over] == [("disk.over", "Room again.", 9.0)]
    assert alarms.update(10.0, "disk", "run", None) == []
    assert len(alarms.update(11.0, "disk", "run", "full again")) == 1


def test_the_same_condition_of_two_subjects_is_told_for_each() -> None:
    alarms = Alarms()
    assert len(alarms.update(0.0, "slow", "engine:0", "x")) == 1
    assert len(alarms.update(0.0, "slow", "engine:1", "x")) == 1
    assert len(alarms.update(0.0, "slow", "engine:0", None)) == 1
    assert alarms.update(0.0, "slow", "engine:1", "y") == []


def feed(watch: ThroughputWatch, minutes: float, tokens_per_s: float | None, in_flight: float) -> str | None:
    problem = None
    for _ in range(round(minutes * 60)):
        problem = watch.feed(1.0, tokens_per_s, in_flight)
    return problem


def test_far_fewer_tokens_with_as_many_requests_is_a_problem_with_a_remedy() -> None:
    watch = ThroughputWatch()
    assert feed(watch, 5, 400.0, 64) is None
    problem = feed(watch, 1, 30.0, 64)
    assert problem is not None
    assert "8% of what it was" in problem
    assert "30 tokens/s, before 400" in problem
    assert "lower the concurrency, or restart the engine" in problem


def test_the_problem_is_over_when_the_throughput_is_back() -> None:
    watch = ThroughputWatch()
    feed(watch, 5, 400.0, 64)
    assert feed(watch, 2, 30.0, 64) is not None
    assert feed(watch, 1, 390.0, 64) is None


def test_a_slow_decay_is_noticed_against_the_best_minute() -> None:
    watch = ThroughputWatch()
    seen = [feed(watch, 1, 400.0 * 0.95**minute, 64) for minute in range(30)]
    assert seen[:13] == [None] * 13
    assert seen[-1] is not None


def test_fewer_requests_make_fewer_tokens_and_that_is_no_problem() -> None:
    watch = ThroughputWatch()
    feed(watch, 5, 400.0, 64)
    assert feed(watch, 5, 60.0, 4) is None
    assert feed(watch, 5, 0.0, 0) is None


def test_a_minute_alone_proves_nothing() -> None:
    watch = ThroughputWatch()
    feed(watch, 1, 400.0, 64)
    assert feed(watch, 1, 30.0, 64) is None


def test_unknown_throughput_changes_nothing() -> None:
    watch = ThroughputWatch()
    feed(watch, 5, 400.0, 64)
    assert feed(watch, 5, None, 64) is None
    problem = feed(watch, 1, 30.0, 64)
    assert feed(watch, 5, None, 64) == problem


def test_what_was_reached_long_ago_is_forgotten() -> None:
    watch = ThroughputWatch(window_s=1.0, memory=10)
    for _ in range(5):
        watch.feed(1.0, 400.0, 64)
    problems = [watch.feed(1.0, 30.0, 64) for _ in range(20)]
    assert problems[0] is not None
    assert problems[-1] is None
