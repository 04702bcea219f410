"""The first lines of pages: the run's, a dataset's, and what simple extrapolation says of the rest."""

from __future__ import annotations

import dataclasses
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from backend.heartbeat import SupervisorState
from backend.records import DatasetState, RunPhase
from backend.report.headline import age_words, dataset_headline, naive_eta_s, progress, share_done
from backend.report.status import read_status
from backend.report.views import DatasetView, RunView
from tests.made_run import make_run

NOW = 1_796_130_120.0


def dataset(**changes: Any) -> DatasetView:
    known = {
        "name": "B3", "state": DatasetState.RUNNING, "finished_samples": 812, "total_samples": 2_000,
        "completion_tokens": 1_600_000, "token_budget": 4_000_000, "mean_completion_tokens": 2_000.0,
    }  # fmt: skip
    return DatasetView(**(dict.fromkeys(field.name for field in dataclasses.fields(DatasetView)) | known | changes))


@pytest.fixture
def view(tmp_path: Path) -> RunView:
    seen = read_status(make_run(tmp_path), NOW)
    return dataclasses.replace(seen, supervisor=dataclasses.replace(seen.supervisor, state=SupervisorState.ALIVE))


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({}, "B3 is running: 812 of 2,000 samples finished, 1.60M of 4.00M tokens."),
        ({"token_budget": None}, "B3 is running: 812 of 2,000 samples finished, 1.60M tokens."),
        ({"total_samples": None}, "B3 is running: 812 samples finished, 1.60M of 4.00M tokens."),
        ({"wanted": DatasetState.PAUSED}, "B3 is pausing: 812 of 2,000 samples finished, 1.60M of 4.00M tokens."),
        ({"state": DatasetState.HELD}, "B3 is held: 812 of 2,000 samples finished, 1.60M of 4.00M tokens."),
        (
            {"state": None, "finished_samples": 0, "completion_tokens": 0},
            "B3 has not begun: 0 of 2,000 samples finished, 0 of 4.00M tokens.",
        ),
        ({"finished_samples": None}, "B3 is running: how much is finished is not known."),
    ],
)
def test_a_dataset_is_told_in_a_sentence(view: RunView, changes: dict[str, Any], words: str) -> None:
    assert dataset_headline(view, dataset(**changes)) == words


def test_without_a_living_supervisor_its_state_is_history(view: RunView) -> None:
    dead = dataclasses.replace(view, supervisor=dataclasses.replace(view.supervisor, state=SupervisorState.DEAD))
    assert dataset_headline(dead, dataset()).startswith("B3 was running: 812 of 2,000")


def test_a_run_that_nobody_works_on_any_more_grows_no_older(view: RunView) -> None:
    created = datetime.fromtimestamp(NOW - 7200, UTC).isoformat()
    at_work = dataclasses.replace(view, created_at=created)
    assert age_words(at_work) == "2 h 00 min"
    left = dataclasses.replace(view.supervisor, state=SupervisorState.LEFT, heartbeat_at=NOW - 7200 + 420)
    assert age_words(dataclasses.replace(at_work, supervisor=left, phase=RunPhase.FINISHED)) == "7 min"
    assert age_words(dataclasses.replace(at_work, supervisor=left, phase=RunPhase.STOPPED)) == "7 min"
    dead = dataclasses.replace(left, state=SupervisorState.DEAD)  # it is to go on
    assert age_words(dataclasses.replace(at_work, supervisor=dead)) == "2 h 00 min"


def test_simple_extrapolation_takes_the_limit_that_comes_first() -> None:
    by_samples = dataset()  # 1,188 samples of 2,000 tokens; the budget leaves 2.4M
    assert naive_eta_s([by_samples], 1_000.0) == pytest.approx(2_376)
    by_budget = dataset(token_budget=2_000_000)
    assert naive_eta_s([by_budget, dataset(state=DatasetState.PAUSED)], 1_000.0) == pytest.approx(400)


def test_simple_extrapolation_says_nothing_without_a_speed_or_a_limit() -> None:
    assert naive_eta_s([dataset()], None) is None
    assert naive_eta_s([dataset(token_budget=None, total_samples=None)], 1_000.0) is None
    assert naive_eta_s([dataset(state=DatasetState.DONE)], 1_000.0) is None


def test_progress_goes_by_the_nearest_limit() -> None:
    none = {"total_samples": None, "token_budget": None}
    assert progress(dataset(**none)) is None
    assert progress(dataset(token_budget=None)) == pytest.approx(0.406)
    assert progress(dataset(completion_tokens=3_600_000)) == 0.9
    assert progress(dataset(completion_tokens=5_000_000)) == 1.0
    assert progress(dataset(state=DatasetState.DONE)) == 1.0


def test_a_run_is_done_as_far_as_its_datasets_on_average_those_killed_left_out(view: RunView) -> None:
    def of(*datasets: DatasetView) -> float | None:
        return share_done(dataclasses.replace(view, datasets=datasets))

    half = dataset(finished_samples=1_000)
    assert of(half, dataset(state=DatasetState.DONE)) == 0.75
    assert of(half, dataset(state=DatasetState.KILLED, total_samples=None, token_budget=None)) == 0.5
    assert of(half, dataset(total_samples=None, token_budget=None)) is None
    assert of() is None
