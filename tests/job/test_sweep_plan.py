"""From level to level, in virtual time: what is measured, what is waited for, and what ends a sweep."""

from __future__ import annotations

from collections import Counter

import pytest
from swept_server import SweptServer, sweep

from backend.forecast.curve import knee
from backend.job.sweep_order import SweepOrder
from backend.job.sweep_plan import FILL_LIMIT_S, LEAST_S, Look, Stage, SweepPlan
from backend.simulator.curve import DEFAULT_CURVE, SpeedCurve
from backend.sweeps import SweepState

LEVELS = (1, 4, 8, 16, 32, 48)
STORY = SpeedCurve.parse(DEFAULT_CURVE)


def begun(server: SweptServer, *levels: int, drain: bool = True) -> SweepPlan:
    return SweepPlan(SweepOrder(levels, drain=drain), {"0": server.life}, server.at_s)


def test_the_knee_is_found_within_one_level_in_nineteen_of_twenty_seeds() -> None:
    found = Counter()
    for seed in range(20):
        server = SweptServer(seed, movement=0.03, memory_s=5.0)
        server.pass_time(20)
        levels, _ = sweep(server, SweepOrder(LEVELS))
        found[knee([(level.concurrency, level.tokens_per_s) for level in levels])] += 1

    assert sum(found[level] for level in (4, 8, 16)) >= 19, found


def test_levels_that_are_called_known_are_within_three_percent_of_what_the_server_can_do() -> None:
    off = []
    for seed in range(5):
        levels, state = sweep(SweptServer(seed, movement=0.02, memory_s=3.0), SweepOrder(LEVELS))
        assert state is SweepState.FINISHED
        off += [level.tokens_per_s / STORY.at(level.concurrency) - 1 for level in levels if level.known]

    assert len(off) == 30
    assert sum(-0.045 < each < 0.03 for each in off) >= 28, off  # prefills take up to 1.5 % of the time


def test_a_steady_level_takes_no_longer_than_the_least_and_an_unsteady_one_no_longer_than_its_limit() -> None:
    steady, _ = sweep(SweptServer(1, movement=0.0), SweepOrder((8,)))
    unsteady, _ = sweep(SweptServer(1, movement=0.5), SweepOrder((8,), level_limit_s=60))

    assert steady[0].known
    assert steady[0].measured_s == pytest.approx(LEAST_S, abs=6)
    assert not unsteady[0].known
    assert unsteady[0].measured_s == pytest.approx(60, abs=6)


def test_no_request_is_aborted_where_those_in_flight_may_finish() -> None:
    server = SweptServer(3)
    server.pass_time(20)
    sweep(server, SweepOrder((1, 4, 8)))

    assert server.aborted == 0


def test_without_a_drain_the_newest_requests_are_aborted_once_and_the_oldest_go_on() -> None:
    server = SweptServer(3)
    server.pass_time(20)
    oldest = server.in_flight_ids()[0]
    plan = begun(server, 1, 4, drain=False)
    server.concurrency = plan.concurrency

    beyond = plan.step(server.look()).abort_beyond
    assert beyond == 1
    server.abort_newest(beyond)

    assert server.in_flight_ids() == [oldest]
    assert server.aborted == 47
    assert plan.step(server.look()).abort_beyond is None
    assert plan.stage is not Stage.LOWERING


def test_the_prompts_of_a_level_are_computed_before_it_is_measured() -> None:
    server = SweptServer(3, prompt_tokens=16_000, concurrency=16)  # 0.8 s of prefill each
    plan = begun(server, 16)
    waited = 0
    while plan.stage is not Stage.MEASURING:
        server.pass_time(1)
        plan.step(server.look())
        waited += 1

    assert waited >= 13
    assert not server.scheduler.waiting


def test_a_queue_that_a_full_server_keeps_does_not_stop_the_measurement() -> None:
    server = SweptServer(3, max_running=8)
    levels, state = sweep(server, SweepOrder((32,)))

    assert state is SweepState.FINISHED
    assert levels[0].running == pytest.approx(8, abs=0.5)
    assert levels[0].tokens_per_s == pytest.approx(STORY.at(8), rel=0.06)


def test_what_else_is_seen_at_a_level_is_told_with_it() -> None:
    levels, _ = sweep(SweptServer(5), SweepOrder((4, 16)))

    assert levels[1].running == pytest.approx(16, abs=0.2)
    assert levels[1].first_token_s == pytest.approx(0.015, abs=0.01)
    assert levels[1].token_usage is not None
    assert 0 < levels[1].token_usage < 0.2
    assert levels[1].context_tokens is not None
    assert 300 < levels[1].context_tokens < 3_000


def test_a_sweep_ends_where_too_few_prompts_are_left() -> None:
    server = SweptServer(3, prompts=20, concurrency=1)
    plan = begun(server, 8, 32)
    while (step := plan.step(server.look())).ended is None:
        server.concurrency = plan.concurrency
        server.pass_time(1)
        assert server.at_s < 200 + FILL_LIMIT_S

    assert step.ended[0] is SweepState.ENDED
    assert step.ended[1] is not None
    assert "requests were in flight: datasets that run have no more prompts" in step.ended[1]


def test_a_sweep_ends_where_the_counter_stands_still() -> None:
    server = SweptServer(3, counter_stands=True)
    levels, state = sweep(server, SweepOrder((8,), level_limit_s=30))

    assert (levels, state) == ([], SweepState.ENDED)


@pytest.mark.parametrize(
    ("replicas", "words"),
    [
        ({"0": "second"}, "replica 0 ended or was started again"),
        ({}, "replica 0 ended or was started again"),
        ({"0": "first", "1": "x"}, "replica 1 became ready: the levels before were measured without it"),
    ],
)
def test_a_sweep_ends_where_other_servers_answer_than_before(replicas: dict[str, str], words: str) -> None:
    server = SweptServer(3)
    plan = begun(server, 8)
    look = server.look()
    there = tuple(server.replica_look(name, life) for name, life in replicas.items())

    assert plan.step(Look(look.at_s, look.in_flight, there)).ended == (SweepState.ENDED, words)


def test_what_stands_in_the_way_ends_a_sweep() -> None:
    server = SweptServer(3)
    step = begun(server, 8).step(server.look("the run was asked to stop"))

    assert step.ended == (SweepState.ENDED, "the run was asked to stop")
