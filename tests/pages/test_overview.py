"""Overview says what goes on and offers the buttons that make sense, in every state of a run."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from streamlit.testing.v1 import AppTest

from tests.pages.shown import open_page, words
from tests.pages.states import run_in

BUTTONS = {
    "created": {"Start"},
    "starting": {"Stop", "Pause", "Kill", "Pause all"},
    "running": {"Stop", "Pause", "Kill", "Pause all"},
    "paused": {"Stop", "Resume", "Kill", "Resume all"},
    "held": {"Stop", "Go on", "Kill"},
    "failed": {"Restart"},
    "finished": set(),
    "supervisor dead": {"Restart"},
}
SENTENCES = {
    "created": "Created and not started yet: 2 datasets.",
    "starting": "Starting, 0 of 2 datasets done",
    "running": "Running alpha, 0 of 2 datasets done",
    "paused": "Paused, 0 of 2 datasets done",
    "held": "Waiting for a decision: alpha is held, 1 of 2 datasets done",
    "failed": "Failed, 0 of 2 datasets done",
    "finished": "Finished, 2 of 2 datasets done",
    "supervisor dead": "Interrupted, 0 of 2 datasets done",
}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HEADWAY_RUNS", str(tmp_path / "runs"))
    return tmp_path


def labels(at: AppTest) -> set[str]:
    return {button.label for button in at.button}


def test_without_a_run_it_says_where_to_make_one(folder: Path) -> None:
    at = open_page("overview.py")
    assert not at.exception
    assert "New run" in words(at)
    assert labels(at) == set()


@pytest.mark.parametrize("state", sorted(BUTTONS))
def test_each_state_has_its_sentence_and_its_buttons(state: str, folder: Path) -> None:
    with run_in(state, folder):
        at = open_page("overview.py", run="demo")
    assert not at.exception, [e.message for e in at.exception]
    assert SENTENCES[state] in words(at)
    assert labels(at) == BUTTONS[state]


def test_the_table_tells_when_each_dataset_is_expected_to_end(folder: Path) -> None:
    with run_in("running", folder):
        seen = words(open_page("overview.py", run="demo"))
    ends = re.findall(r'<span class="hw-end">([^<]*)</span>', seen)
    assert len(ends) == 2
    assert all(re.search(r"\d\d:\d\d", end) for end in ends), ends


def test_a_long_run_is_asked_for_a_faster_way_with_the_way_to_the_forecast(folder: Path) -> None:
    with run_in("running", folder):
        assert "Is there a faster way?" in words(open_page("overview.py", run="demo"))


def test_a_run_that_is_over_is_not_asked(folder: Path) -> None:
    with run_in("finished", folder):
        assert "Is there a faster way?" not in words(open_page("overview.py", run="demo"))


def test_a_dataset_without_a_living_supervisor_is_history(folder: Path) -> None:
    with run_in("supervisor dead", folder):
        at = open_page("overview.py", run="demo")
    assert "was running" in words(at)
