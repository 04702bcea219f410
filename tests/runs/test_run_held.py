"""A dataset whose answers are empty is held after its first samples, says why, and goes on only when somebody wants it to."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from backend.records import DatasetState, RunPhase
from tests.runs.live_run import make_run, write_prompts

RULES = [{"match": "EMPTY", "mean": 120, "log_sd": 0.5, "empty_share": 0.87}, {"match": "", "mean": 120, "log_sd": 0.5}]


@pytest.mark.timeout(240)
def test_a_dataset_of_empty_answers_is_held_waits_through_a_crash_and_goes_on_when_wanted(tmp_path: Path) -> None:
    (tmp_path / "rules.json").write_text(json.dumps(RULES))
    good = write_prompts(tmp_path / "B1.jsonl", 60)
    bad = write_prompts(tmp_path / "B2.jsonl", 240, marker="EMPTY")
    datasets = [{"name": "B1", "path": "B1.jsonl"}, {"name": "B2", "path": "B2.jsonl"}]
    run = make_run(tmp_path, datasets, guards={}, args=["--lengths", str(tmp_path / "rules.json"), "--speed", "40"])
    try:
        run.start()
        run.wait_dataset("B2", lambda d: d.state is DatasetState.HELD and not d.in_flight)
        run.wait_dataset("B1", lambda d: d.state is DatasetState.DONE)
        held = run.dataset("B2")
        told = re.match(r"Of the (\d+) samples that were started first, (\d+) are bad answers", held.reason or "")
        assert told is not None, held
        assert int(told[2]) <= int(told[1]) <= 40
        assert held.finished_samples <= 80  # what was in flight has finished, the rest was never asked for
        assert run.status().phase is RunPhase.RUNNING
        assert held.reason in run.words("dataset.held")

        run.kill_supervisor()
        run.start()
        run.wait(lambda status: status.phase is RunPhase.RUNNING and status.replicas[0].url is not None)
        again = run.dataset("B2")
        assert (again.state, again.reason) == (DatasetState.HELD, held.reason)
        assert run.kinds()["dataset.held"] == 1

        run.resume("B2")
        assert run.wait_left().phase is RunPhase.FINISHED
        assert run.dataset("B2").finished_samples == 240 > held.finished_samples
        assert "goes on anyway" in run.words("dataset.goes_on")
        assert run.kinds()["dataset.held"] == 1
        run.check_exact({"B1": good, "B2": bad})
    finally:
        run.cleanup()
