"""A real run makes a pilot of each waiting dataset, is forecast while it goes on, and keeps score of what was said."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from live_run import LiveRun, write_prompts

from backend import forecasts
from backend.records import DatasetState

NewRun = Callable[..., LiveRun]
pytestmark = pytest.mark.drill


def test_waiting_datasets_get_their_pilot_and_what_was_forecast_is_scored(tmp_path: Path, new_run: NewRun) -> None:
    expected = {"A": write_prompts(tmp_path / "A.jsonl", 500), "B": write_prompts(tmp_path / "B.jsonl", 60)}
    run = new_run([{"name": name, "path": f"{name}.jsonl"} for name in expected], args=["--speed", "10"])
    run.start()

    seen = run.wait(lambda status: status.datasets[1].finished_samples == 16 and status.datasets[1].in_flight == 0)
    a, b = seen.datasets
    assert b.state is DatasetState.WAITING
    assert a.state is DatasetState.RUNNING
    assert a.finished_samples < 500
    assert seen.in_flight == 16  # the running dataset fills all other slots

    run.wait(lambda _: (said := forecasts.read_newest(run.run)) is not None and said.forecast.remaining is not None)
    said = forecasts.read_newest(run.run)
    assert said is not None
    assert said.active
    assert [d.name for d in said.forecast.datasets] == ["A", "B"]
    assert said.forecast.assumptions is not None
    assert said.forecast.assumptions.not_begun == ()

    # what a killed supervisor said is not forgotten
    run.kill_supervisor()
    run.start()
    run.wait(
        lambda _: (later := forecasts.read_newest(run.run)) is not None
        and later.at > said.at
        and later.forecast.remaining is not None
    )
    later = forecasts.read_newest(run.run)
    assert later is not None
    assert later.active_s >= said.active_s

    run.wait_left()
    run.check_exact(expected)
    assert {one.subject for one in forecasts.read_scores(run.run)} == {"run", "dataset:A", "dataset:B"}
    scored = next(one for one in forecasts.read_scores(run.run) if one.subject == "run")
    assert scored.forecasts >= 1
    assert scored.sample.actual_s > 0


def test_a_pilot_can_be_switched_off(tmp_path: Path, new_run: NewRun) -> None:
    for name in ("A", "B"):
        write_prompts(tmp_path / f"{name}.jsonl", 400)
    run = new_run(
        [{"name": name, "path": f"{name}.jsonl"} for name in ("A", "B")],
        args=["--speed", "20"],
        forecast={"pilot_samples": 0},
    )
    run.start()
    status = run.wait(lambda status: status.datasets[0].finished_samples >= 17)
    assert status.datasets[1].finished_samples == status.datasets[1].in_flight == 0


def test_a_changed_limit_begins_a_new_plan_and_a_new_forecast(tmp_path: Path, new_run: NewRun) -> None:
    write_prompts(tmp_path / "A.jsonl", 8000)
    run = new_run([{"name": "A", "path": "A.jsonl"}], args=["--speed", "10"])
    run.start()
    run.wait(lambda _: (said := forecasts.read_newest(run.run)) is not None and said.forecast.remaining is not None)
    before = forecasts.read_newest(run.run)
    run.set("A.max_samples", "2000")
    run.wait(lambda _: (said := forecasts.read_newest(run.run)) is not None and said.plan > before.plan)  # type: ignore[union-attr]
    after = forecasts.read_newest(run.run)
    assert before is not None
    assert after is not None
    assert after.reason == "what is wanted has changed"
    assert before.forecast.remaining is not None
    assert after.forecast.remaining is not None
    assert after.forecast.remaining.p50 < before.forecast.remaining.p50 / 2

    # a lower cap holds for requests to come
    run.set("A.max_new_tokens", "20")
    run.set("A.max_samples", str(run.dataset("A").finished_samples + 60))
    run.wait_left()
    assert any(row.completion_tokens == 20 and row.finish_reason == "length" for row in run.rows())
