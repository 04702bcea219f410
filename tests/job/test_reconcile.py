"""What is done, for what is wanted and what is."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from backend.config import AtBudget
from backend.job.reconcile import (
    AbortDataset,
    AwaitRestart,
    GiveUpReplica,
    Launch,
    Observed,
    ObservedDataset,
    ObservedReplica,
    RestartPolicy,
    SetDatasetState,
    SetPhase,
    StopReplica,
    reconcile,
)
from backend.job.wishes import DatasetWish, Want, Wishes
from backend.records import DatasetState, DoneReason, EngineState, RunPhase

POLICY = RestartPolicy(backoff_s=2, backoff_max_s=30, max_restarts=3, window_s=3600)
NOW = 1000.0


def _wish(**changes: Any) -> DatasetWish:
    return replace(DatasetWish(Want.RUNNING, False, None, None, AtBudget.DRAIN), **changes)


def _wishes(dataset: DatasetWish | None = None, **changes: Any) -> Wishes:
    return replace(
        Wishes(Want.RUNNING, False, Want.RUNNING, 4, ("B1",), {"B1": dataset or _wish()}),
        **changes,
    )


def _dataset(**changes: Any) -> ObservedDataset:
    return replace(ObservedDataset("B1", DatasetState.RUNNING, 2, None, False, True), **changes)


def _replica(**changes: Any) -> ObservedReplica:
    return replace(ObservedReplica("0", EngineState.READY, owned=True), **changes)


def _observed(dataset: ObservedDataset | None = None, replica: ObservedReplica | None = None, **changes: Any) -> Observed:
    return replace(Observed(RunPhase.RUNNING, (replica or _replica(),), (dataset or _dataset(),)), **changes)


def _actions(wishes: Wishes, observed: Observed, now: float = NOW) -> list[Any]:
    return reconcile(wishes, observed, POLICY, now)


def test_nothing_is_done_while_all_is_as_wanted() -> None:
    assert _actions(_wishes(), _observed()) == []


def test_a_wanted_engine_that_never_lived_is_launched() -> None:
    assert Launch("0") in _actions(_wishes(), _observed(replica=_replica(state=EngineState.STOPPED)))


def test_a_life_that_ended_is_followed_by_another_after_the_back_off() -> None:
    ended = _replica(state=EngineState.STOPPED, ended_at=NOW, lives_ended=(NOW,), end_reason="killed")
    waiting = replace(ended, state=EngineState.RESTARTING)

    assert _actions(_wishes(), _observed(replica=ended)) == [AwaitRestart("0")]
    assert _actions(_wishes(), _observed(replica=waiting), now=NOW + 1.9) == []
    assert _actions(_wishes(), _observed(replica=waiting), now=NOW + 2.0) == [Launch("0")]


def test_a_clock_that_was_set_back_holds_no_restart_up() -> None:
    waiting = _replica(state=EngineState.RESTARTING, ended_at=NOW, lives_ended=(NOW,))

    assert _actions(_wishes(), _observed(replica=waiting), now=NOW - 3600) == [Launch("0")]


def test_the_back_off_doubles_up_to_its_limit() -> None:
    assert [POLICY.wait_s(n) for n in (1, 2, 3, 4, 5, 50)] == [2, 4, 8, 16, 30, 30]


def test_too_many_ends_within_the_window_are_the_last() -> None:
    replica = _replica(state=EngineState.STOPPED, ended_at=NOW, lives_ended=(NOW - 3, NOW - 2, NOW - 1, NOW), end_reason="oom")

    assert _actions(_wishes(), _observed(replica=replica)) == [GiveUpReplica("0", "it ended 4 times within 1 h: oom")]
    old = replace(replica, lives_ended=(NOW - 9000, NOW - 8000, NOW - 7000, NOW))
    assert _actions(_wishes(), _observed(replica=old)) == [AwaitRestart("0")]


def test_starts_that_fail_three_times_in_a_row_are_given_up() -> None:
    replica = _replica(state=EngineState.STOPPED, ended_at=NOW, lives_ended=(NOW,), failed_starts=3, end_reason="no such model")

    assert _actions(_wishes(), _observed(replica=replica)) == [GiveUpReplica("0", "3 starts failed: no such model")]


def test_a_stalled_replica_is_stopped_only_if_it_is_ours() -> None:
    stalled = _replica(state=EngineState.STALLED, stalled=True)

    assert _actions(_wishes(), _observed(replica=stalled)) == [StopReplica("0", "requests were waiting and no token came")]
    assert _actions(_wishes(), _observed(replica=replace(stalled, owned=False))) == []


@pytest.mark.parametrize("state", [EngineState.STOPPING, EngineState.FAILED])
def test_a_replica_that_is_being_stopped_or_was_given_up_is_left_alone(state: EngineState) -> None:
    other = _replica(name="1")

    assert _actions(_wishes(), _observed(replicas=(_replica(state=state), other))) == []


def test_an_engine_that_is_not_wanted_is_stopped() -> None:
    assert _actions(_wishes(engine=Want.STOPPED), _observed()) == [StopReplica("0", "no longer wanted")]


def test_a_run_whose_replicas_all_failed_cannot_go_on() -> None:
    failed = _replica(state=EngineState.FAILED, end_reason="no such model")

    assert SetPhase(RunPhase.FAILED, "no such model") in _actions(_wishes(), _observed(replica=failed))


def test_pausing_lets_requests_in_flight_finish() -> None:
    paused = _wishes(_wish(want=Want.PAUSED))

    assert _actions(paused, _observed()) == [SetDatasetState("B1", DatasetState.DRAINING, "pausing")]
    drained = _dataset(state=DatasetState.DRAINING, in_flight=0)
    assert _actions(paused, _observed(drained)) == [SetDatasetState("B1", DatasetState.PAUSED)]


def test_a_pause_that_is_taken_back_is_no_reason_any_more() -> None:
    draining = _dataset(state=DatasetState.DRAINING, exhausted=True, reason="pausing")

    assert _actions(_wishes(_wish(want=Want.PAUSED)), _observed(draining)) == []
    assert _actions(_wishes(), _observed(draining)) == [SetDatasetState("B1", DatasetState.DRAINING, None)]


def test_pausing_now_aborts_them() -> None:
    actions = _actions(_wishes(_wish(want=Want.PAUSED, now=True)), _observed())

    assert actions == [SetDatasetState("B1", DatasetState.PAUSED), AbortDataset("B1")]


def test_killing_aborts_and_the_other_dataset_goes_on() -> None:
    wishes = replace(
        _wishes(_wish(want=Want.KILLED, now=True)), datasets={"B1": _wish(want=Want.KILLED, now=True), "B2": _wish()}
    )
    other = _dataset(name="B2")

    actions = _actions(wishes, _observed(datasets=(_dataset(), other)))

    assert actions == [SetDatasetState("B1", DatasetState.KILLED), AbortDataset("B1")]


def test_a_paused_dataset_that_had_already_finished_is_done() -> None:
    finished = _dataset(state=DatasetState.DRAINING, in_flight=0, exhausted=True)

    assert SetDatasetState("B1", DatasetState.DONE, "prompts") in _actions(
        _wishes(_wish(want=Want.PAUSED)), _observed(finished)
    )


@pytest.mark.parametrize("limit", [DoneReason.BUDGET, DoneReason.SAMPLES])
def test_a_dataset_is_done_when_its_limit_is_reached_and_nothing_is_in_flight(limit: DoneReason) -> None:
    dataset = _dataset(in_flight=0, limit=limit, admits=False)

    assert SetDatasetState("B1", DatasetState.DONE, limit.value) in _actions(_wishes(), _observed(dataset))


def test_a_done_dataset_whose_budget_was_raised_waits_for_its_turn_again() -> None:
    dataset = _dataset(state=DatasetState.DONE, in_flight=0)

    assert _actions(_wishes(), _observed(dataset)) == [SetDatasetState("B1", DatasetState.WAITING)]


def test_a_dataset_that_admits_nothing_more_drains() -> None:
    assert _actions(_wishes(), _observed(_dataset(admits=False))) == [SetDatasetState("B1", DatasetState.DRAINING)]


def test_a_fault_ends_a_dataset_and_not_the_run() -> None:
    broken, other = _dataset(fault="its file is gone", in_flight=0), _dataset(name="B2")
    wishes = replace(_wishes(), datasets={"B1": _wish(), "B2": _wish()})

    actions = _actions(wishes, _observed(datasets=(broken, other)))

    assert actions == [SetDatasetState("B1", DatasetState.FAILED, "its file is gone")]


def test_when_every_dataset_has_ended_the_engine_is_stopped_and_then_the_run_is_finished() -> None:
    done = _dataset(state=DatasetState.DONE, in_flight=0, limit=DoneReason.BUDGET, admits=False)

    first = _actions(_wishes(), _observed(done))
    assert first == [SetPhase(RunPhase.STOPPING, "every dataset has ended"), StopReplica("0", "no longer wanted")]
    gone = _observed(done, _replica(state=EngineState.STOPPED), phase=RunPhase.STOPPING)
    assert _actions(_wishes(), gone) == [SetPhase(RunPhase.FINISHED)]


def test_a_paused_dataset_keeps_the_run_and_its_engine_alive() -> None:
    paused = _dataset(state=DatasetState.PAUSED, in_flight=0)

    assert _actions(_wishes(_wish(want=Want.PAUSED)), _observed(paused)) == []


def test_an_attached_engine_is_never_stopped() -> None:
    done = _dataset(state=DatasetState.DONE, in_flight=0, limit=DoneReason.BUDGET, admits=False)

    assert _actions(_wishes(), _observed(done, _replica(owned=False))) == [SetPhase(RunPhase.FINISHED)]


def test_a_dataset_whose_pilot_is_made_goes_on_waiting() -> None:
    pilot = _dataset(state=DatasetState.WAITING, in_flight=16, in_pilot=True)
    assert _actions(_wishes(), _observed(pilot)) == []
    begun = replace(pilot, in_pilot=False)
    assert SetDatasetState("B1", DatasetState.RUNNING, None) in _actions(_wishes(), _observed(begun))
    small = replace(pilot, exhausted=True)  # its pilot is all there is
    assert SetDatasetState("B1", DatasetState.DRAINING, None) in _actions(_wishes(), _observed(small))
    paused = _wishes(_wish(want=Want.PAUSED))
    assert SetDatasetState("B1", DatasetState.DRAINING, "pausing") in _actions(paused, _observed(pilot))


def test_stopping_drains_first_and_aborts_when_that_takes_too_long() -> None:
    stop = _wishes(run=Want.STOPPED)

    first = _actions(stop, _observed())
    assert first == [SetDatasetState("B1", DatasetState.DRAINING), SetPhase(RunPhase.DRAINING)]
    draining = _observed(_dataset(state=DatasetState.DRAINING), phase=RunPhase.DRAINING)
    assert _actions(stop, draining) == []
    assert _actions(stop, replace(draining, drain_overdue=True)) == [AbortDataset("B1")]
    empty = _observed(_dataset(state=DatasetState.DRAINING, in_flight=0), phase=RunPhase.DRAINING)
    assert _actions(stop, empty) == [
        SetDatasetState("B1", DatasetState.WAITING),
        SetPhase(RunPhase.STOPPING),
        StopReplica("0", "no longer wanted"),
    ]


def test_stopping_now_aborts_at_once() -> None:
    assert AbortDataset("B1") in _actions(_wishes(run=Want.STOPPED, run_now=True), _observed())


def test_a_pending_redo_keeps_a_finished_run_from_ending() -> None:
    done = _dataset(state=DatasetState.DONE, in_flight=0, limit=DoneReason.SAMPLES, admits=False)
    from backend.records import Outcome

    assert _actions(_wishes(_wish(redo=(Outcome.EMPTY,))), _observed(done)) == []


def test_a_failed_engine_does_not_end_a_run_as_long_as_an_api_makes_something_of_it() -> None:
    failed = _replica(state=EngineState.FAILED, end_reason="no such model")

    assert _actions(_wishes(), _observed(replica=failed, apis_work=True)) == []
    stopping = _wishes(run=Want.STOPPED)
    observed = _observed(_dataset(state=DatasetState.DRAINING), failed, apis_work=True)
    assert _actions(stopping, observed) == [SetPhase(RunPhase.DRAINING)]


def test_a_run_with_a_failed_dataset_ends_as_failed() -> None:
    failed = _dataset(state=DatasetState.FAILED, in_flight=0, fault="its file is gone")
    gone = _observed(failed, _replica(state=EngineState.STOPPED), phase=RunPhase.STOPPING)

    assert _actions(_wishes(), gone) == [SetPhase(RunPhase.FAILED, "failed: B1")]


def test_while_what_would_make_a_start_fail_is_looked_for_the_run_is_starting_and_nothing_is_launched() -> None:
    new = _observed(
        _dataset(state=DatasetState.WAITING, in_flight=0), _replica(state=EngineState.STOPPED), phase=RunPhase.STARTING
    )

    assert _actions(_wishes(), replace(new, checking=True)) == []
    assert _actions(_wishes(), new) == [SetPhase(RunPhase.RUNNING), Launch("0")]


HOLD = "12 of 14 are empty"


def test_a_dataset_that_its_guard_holds_is_held_with_the_reason_also_while_requests_finish_and_while_it_waits() -> None:
    for state, in_flight in ((DatasetState.RUNNING, 2), (DatasetState.DRAINING, 2), (DatasetState.WAITING, 0)):
        observed = _observed(_dataset(state=state, in_flight=in_flight, hold=HOLD))
        assert _actions(_wishes(), observed) == [SetDatasetState("B1", DatasetState.HELD, HOLD)]
    assert _actions(_wishes(), _observed(_dataset(state=DatasetState.HELD, hold=HOLD))) == []


def test_a_held_dataset_goes_on_once_its_guard_lets_it_and_can_be_killed_and_paused() -> None:
    held = _dataset(state=DatasetState.HELD, in_flight=0, hold=HOLD)
    assert _actions(_wishes(), _observed(replace(held, hold=None))) == [SetDatasetState("B1", DatasetState.WAITING)]
    paused = _actions(_wishes(_wish(want=Want.PAUSED)), _observed(held))
    assert paused == [SetDatasetState("B1", DatasetState.PAUSED, HOLD)]
    killed = _actions(_wishes(_wish(want=Want.KILLED, now=True)), _observed(replace(held, in_flight=2)))
    assert killed == [SetDatasetState("B1", DatasetState.KILLED), AbortDataset("B1")]


def test_a_held_dataset_keeps_the_run_going_and_one_with_nothing_left_to_make_does_not() -> None:
    held = _dataset(state=DatasetState.HELD, in_flight=0, hold=HOLD)
    assert not any(isinstance(action, SetPhase) for action in _actions(_wishes(), _observed(held)))
    over = _actions(_wishes(), _observed(replace(held, exhausted=True)))
    assert SetDatasetState("B1", DatasetState.DONE, "prompts") in over
    assert SetPhase(RunPhase.STOPPING, "every dataset has ended") in over
