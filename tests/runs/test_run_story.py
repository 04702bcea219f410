"""What a user does with a run, from start to finish, against real processes."""

from __future__ import annotations

import os
import shutil
import signal
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from live_run import LiveRun, write_prompts

from backend.control.intents import want_dataset
from backend.outcomes import outcome_of
from backend.records import DatasetState, EngineState, Outcome, RunPhase

NewRun = Callable[..., LiveRun]


def test_a_run_of_two_datasets_finishes_exactly_and_leaves_nothing_behind(tmp_path: Path, new_run: NewRun) -> None:
    expected = {name: write_prompts(tmp_path / f"{name}.jsonl", 30) for name in ("A", "B")}
    run = new_run([{"name": name, "path": f"{name}.jsonl"} for name in expected], engine={"replicas": 2})

    run.start()
    status = run.wait_left()

    assert (status.phase, status.exit_code) == (RunPhase.FINISHED, 0)
    assert [(d.state, d.reason) for d in status.datasets] == [(DatasetState.DONE, "prompts")] * 2
    run.check_exact(expected)
    assert run.processes() == []
    assert all(row.prompt_token_ids and row.output_ids and row.raw_text for row in run.rows())


def test_a_killed_supervisor_finds_its_server_again_and_goes_on_within_five_seconds(tmp_path: Path, new_run: NewRun) -> None:
    expected = {"A": write_prompts(tmp_path / "A.jsonl", 40)}
    run = new_run([{"name": "A", "path": "A.jsonl"}], args=["--speed", "5"])
    run.start()
    run.wait(lambda s: s.datasets[0].finished_samples >= 5 and s.in_flight > 0)
    server = run.status().replicas[0].pid
    began = {row.started_at for row in run.rows()}

    run.kill_supervisor()
    killed_at = time.time()
    run.start()
    status = run.wait(lambda s: s.replicas[0].state is EngineState.READY and s.in_flight > 0, 5.0)

    assert status.replicas[0].pid == server
    assert time.time() - killed_at < 5.0
    assert "requests of the former supervisor were aborted" in run.words("engine.former_requests_aborted")
    run.wait_left()
    run.check_exact(expected)
    assert len({row.server_epoch for row in run.rows()}) == 1
    assert began < {row.started_at for row in run.rows()}


def test_pausing_lets_requests_finish_and_pausing_now_does_not(tmp_path: Path, new_run: NewRun) -> None:
    expected = {"A": write_prompts(tmp_path / "A.jsonl", 120)}
    run = new_run([{"name": "A", "path": "A.jsonl"}], args=["--speed", "10"])
    run.start()
    run.wait(lambda s: s.datasets[0].finished_samples >= 3)

    run.pause("A")
    run.wait_dataset("A", lambda d: d.state is DatasetState.PAUSED and d.in_flight == 0)
    drained = run.dataset("A").finished_samples
    run.resume("A")
    run.wait_dataset("A", lambda d: d.in_flight == 16)
    run.pause("A", now=True)
    run.wait_dataset("A", lambda d: d.state is DatasetState.PAUSED and d.in_flight == 0, 10.0)
    aborted = run.dataset("A").finished_samples
    assert run.status().replicas[0].state is EngineState.READY
    run.set("concurrency", "64")
    run.resume("A")
    run.wait_dataset("A", lambda d: d.in_flight > 16)
    run.wait_left()

    assert 3 <= drained <= aborted < 120
    run.check_exact(expected)


def test_a_killed_dataset_keeps_what_is_finished_and_can_be_revived(tmp_path: Path, new_run: NewRun) -> None:
    expected = {name: write_prompts(tmp_path / f"{name}.jsonl", 60) for name in ("A", "B")}
    run = new_run([{"name": name, "path": f"{name}.jsonl"} for name in expected], args=["--speed", "10"])
    run.start()
    run.wait_dataset("A", lambda d: d.finished_samples >= 3)

    run.kill("A")
    run.wait_dataset("A", lambda d: d.state is DatasetState.KILLED and d.in_flight == 0, 10.0)
    kept = run.dataset("A").finished_samples
    run.wait_dataset("B", lambda d: d.finished_samples >= 3)
    assert run.dataset("A").finished_samples == kept < 60
    run.resume("A")
    run.wait_left()

    run.check_exact(expected)


@pytest.mark.drill
def test_a_dataset_killed_and_revived_in_haste_goes_on_though_many_wishes_are_still_unread(
    tmp_path: Path, new_run: NewRun
) -> None:
    expected = {"A": write_prompts(tmp_path / "A.jsonl", 40)}
    run = new_run([{"name": "A", "path": "A.jsonl"}], args=["--speed", "10"])
    run.start()
    run.wait_dataset("A", lambda d: d.finished_samples >= 3)

    for _ in range(80):
        want_dataset(run.run, "A", "killed", "test", now=True)
    want_dataset(run.run, "A", "running", "test")
    run.wait_left()

    run.check_exact(expected)


def test_a_run_whose_folder_is_removed_leaves_no_server_behind(tmp_path: Path, new_run: NewRun) -> None:
    write_prompts(tmp_path / "A.jsonl", 40)
    run = new_run([{"name": "A", "path": "A.jsonl"}], args=["--speed", "1"])
    pid = run.start()
    run.wait_dataset("A", lambda d: d.in_flight)
    assert run.processes()

    shutil.rmtree(run.run.root)

    deadline = time.monotonic() + 60
    while Path(f"/proc/{pid}").exists() or run.processes():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_a_stop_drains_and_a_start_goes_on(tmp_path: Path, new_run: NewRun) -> None:
    expected = {"A": write_prompts(tmp_path / "A.jsonl", 80)}
    run = new_run([{"name": "A", "path": "A.jsonl"}], args=["--speed", "10"])
    run.start()
    run.wait(lambda s: s.datasets[0].finished_samples >= 3)

    run.stop()
    status = run.wait_left()

    assert (status.phase, status.in_flight) == (RunPhase.STOPPED, 0)
    assert status.datasets[0].retries == 0
    assert run.processes() == []
    assert 3 < status.datasets[0].finished_samples < 80
    run.start()
    assert run.wait_left().phase is RunPhase.FINISHED
    run.check_exact(expected)


def test_sigterm_drains_within_the_limit_and_then_aborts(tmp_path: Path, new_run: NewRun) -> None:
    write_prompts(tmp_path / "A.jsonl", 40)
    run = new_run([{"name": "A", "path": "A.jsonl"}], args=["--speed", "1"], driver={"drain_limit_s": 1})
    pid = run.start()
    run.wait(lambda s: s.in_flight == 16)

    os.kill(pid, signal.SIGTERM)
    status = run.wait_left(20.0)

    assert (status.phase, status.exit_code, status.in_flight) == (RunPhase.STOPPED, 0, 0)
    assert run.processes() == []


def test_limits_and_order_change_while_the_run_goes_on(tmp_path: Path, new_run: NewRun) -> None:
    for name in ("A", "B", "C"):
        write_prompts(tmp_path / f"{name}.jsonl", 100)
    run = new_run(
        [{"name": name, "path": f"{name}.jsonl"} for name in ("A", "B", "C")],
        args=["--speed", "5"],
        forecast={"pilot_samples": 0},
    )
    run.start()
    run.wait_dataset("A", lambda d: d.finished_samples >= 1)

    run.set("order", "C,B")
    run.set("B.max_samples", "5")
    run.set("C.max_samples", "30")
    run.set("concurrency", "40")
    run.set("A.max_samples", "20")
    status = run.wait_left()

    finished = {d.name: d.finished_samples for d in status.datasets}
    assert (finished["B"], finished["C"]) == (5, 30)
    assert 20 <= finished["A"] < 100
    assert status.order == ("C", "B", "A")
    first = {name: min(row.started_at for row in run.rows(name)) for name in ("B", "C")}
    assert first["C"] < first["B"]
    run.check_exact()


def test_samples_of_an_outcome_are_made_again_and_the_old_ones_stay_superseded(tmp_path: Path, new_run: NewRun) -> None:
    expected = {"A": write_prompts(tmp_path / "A.jsonl", 30), "B": write_prompts(tmp_path / "B.jsonl", 150)}
    run = new_run(
        [{"name": "A", "path": "A.jsonl"}, {"name": "B", "path": "B.jsonl"}],
        args=["--speed", "30", "--fault", "empty-stop=0.5"],
    )
    run.start()
    run.wait_dataset("A", lambda d: d.finished_samples == 30)
    empty = {row.sample_id for row in run.rows("A") if not row.answer and row.finish_reason == "stop"}
    assert empty
    run.fault("empty-stop", False)

    run.redo("A", "empty")
    run.wait(lambda s: len(run.superseded()) == len(empty), what="superseded")
    run.wait_left()

    run.check_exact(expected)
    again = {row.sample_id for row in run.rows("A") if row.attempt == 2}
    assert again == empty
    assert [row for row in run.rows("A") if row.attempt == 2 and outcome_of(row) is Outcome.EMPTY] == []
    assert len({row.server_epoch for row in run.rows()}) == 1, "the fault came back with a new server"
    assert len(run.rows("A")) == 30 + len(empty)


def test_losing_the_state_database_loses_no_sample_and_no_decision(tmp_path: Path, new_run: NewRun) -> None:
    expected = {"A": write_prompts(tmp_path / "A.jsonl", 30), "B": write_prompts(tmp_path / "B.jsonl", 30)}
    run = new_run([{"name": "A", "path": "A.jsonl"}, {"name": "B", "path": "B.jsonl"}], args=["--speed", "10"])
    run.start()
    run.kill("B")
    run.wait_dataset("A", lambda d: d.finished_samples >= 3)
    run.kill_supervisor()
    for path in run.run.root.glob("state.sqlite*"):
        path.unlink()

    run.start()
    status = run.wait_left()

    assert {d.name: d.state for d in status.datasets} == {"A": DatasetState.DONE, "B": DatasetState.KILLED}
    run.check_exact({"A": expected["A"], "B": []})
