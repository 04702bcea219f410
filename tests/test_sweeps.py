"""Sweeps as they are kept, and the curve that follows."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from backend import sweeps
from backend.run_dir import RunDir, open_state
from backend.sweeps import Sweep, SweepLevel, SweepProgress, SweepState, measured_efficiency, newest_curve, read_sweeps

STORY = {1: 62, 4: 207, 8: 370, 16: 385, 32: 393, 48: 409}


@pytest.fixture
def con(tmp_path: Path) -> Iterator[sqlite3.Connection]:
    with closing(open_state(RunDir(tmp_path))) as con:
        sweeps.create_tables(con)
        yield con


def write(
    con: sqlite3.Connection,
    speeds: dict[int, float],
    *,
    replicas: int = 1,
    state: SweepState = SweepState.FINISHED,
    at: float = 1.0,
) -> int:
    asked = list(speeds)
    sweep_id = sweeps.begin(con, at=at, who="me", asked=asked, level_limit_s=60, replicas=replicas)
    for level, speed in speeds.items():
        sweeps.add_level(con, sweep_id, SweepLevel(concurrency=level, tokens_per_s=speed))
    if state is not SweepState.RUNNING:
        sweeps.end(con, sweep_id, state, None, at + 1)
    return sweep_id


def test_a_sweep_is_read_as_it_was_written(con: sqlite3.Connection) -> None:
    sweep_id = sweeps.begin(con, at=5.0, who="me", asked=[4, 8], level_limit_s=60, replicas=2)
    progress = SweepProgress(level=8, stage="measuring", in_flight=8, since=7.0, tokens_per_s=360.0)
    level = SweepLevel(
        concurrency=4, tokens_per_s=207.5, half_width_tokens_per_s=3.0, known=True, measured_s=31.0, running=3.9,
        first_token_s=0.2, token_usage=0.1, context_tokens=900.0,
    )  # fmt: skip
    sweeps.add_level(con, sweep_id, level)
    sweeps.note_progress(con, sweep_id, progress)

    (read,) = read_sweeps(con)
    assert (read.state, read.asked, read.replicas, read.progress) == (SweepState.RUNNING, (4, 8), 2, progress)
    assert read.levels == (level,)
    assert level.tokens_per_s_a_request == pytest.approx(51.875)

    sweeps.end(con, sweep_id, SweepState.ENDED, "why", 9.0)
    (read,) = read_sweeps(con)
    assert (read.state, read.reason, read.ended_at, read.progress) == (SweepState.ENDED, "why", 9.0, None)


def test_a_run_that_never_swept_has_no_sweep_and_no_curve(tmp_path: Path) -> None:
    run = RunDir(tmp_path)
    assert sweeps.sweeps_of(run) == []
    open_state(run).close()
    assert sweeps.sweeps_of(run) == []
    assert newest_curve([], 1) is None


def test_the_curve_is_the_newest_finished_sweep(con: sqlite3.Connection) -> None:
    write(con, {1: 10, 4: 20})
    newest = write(con, STORY)
    write(con, {1: 62, 4: 207}, state=SweepState.CANCELLED)
    write(con, {1: 62, 4: 207}, state=SweepState.RUNNING)

    curve = newest_curve(read_sweeps(con), 1)
    assert curve is not None
    assert (curve.sweep.id, curve.efficiency) == (newest, None)
    assert curve.points == tuple((float(n), float(speed)) for n, speed in STORY.items())


def test_without_a_finished_sweep_two_levels_of_another_are_better_than_nothing(con: sqlite3.Connection) -> None:
    write(con, {1: 62}, state=SweepState.INTERRUPTED)
    assert newest_curve(read_sweeps(con), 1) is None
    write(con, {1: 62, 4: 207}, state=SweepState.INTERRUPTED)
    curve = newest_curve(read_sweeps(con), 1)
    assert curve is not None
    assert curve.points == ((1.0, 62.0), (4.0, 207.0))


def test_a_sweep_of_one_replica_holds_for_more_by_an_assumption_until_several_were_measured(con: sqlite3.Connection) -> None:
    write(con, STORY, replicas=1)
    assumed = newest_curve(read_sweeps(con), 4)
    assert assumed is not None
    assert assumed.efficiency_is_assumed
    assert assumed.points[-1] == (192.0, 4 * 409.0)

    write(con, {n * 2: speed * 1.8 for n, speed in STORY.items()}, replicas=2)
    measured = newest_curve(read_sweeps(con), 4)
    assert measured is not None
    assert measured.efficiency == pytest.approx(0.8)
    assert not measured.efficiency_is_assumed
    assert measured.points[-1] == (192.0, pytest.approx(409 * 1.8 * 1.8))


def test_efficiency_compares_as_many_requests_a_replica(con: sqlite3.Connection) -> None:
    write(con, {1: 100, 8: 800}, replicas=1)
    write(con, {2: 200, 8: 800}, replicas=2)  # never more than four a replica
    efficiency = measured_efficiency(read_sweeps(con))
    assert efficiency == pytest.approx(1.0)


def test_one_number_of_replicas_tells_no_efficiency() -> None:
    made = Sweep(
        id=1, at=0, who="me", source=None, asked=(1,), level_limit_s=1, replicas=2, state=SweepState.FINISHED,
        levels=(SweepLevel(concurrency=1, tokens_per_s=5),),
    )  # fmt: skip
    assert measured_efficiency([made]) is None
