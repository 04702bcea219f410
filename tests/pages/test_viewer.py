"""The viewer shows one run in every state, says what is wrong in words for those who can do nothing about it, and no more."""

from __future__ import annotations

from pathlib import Path

import pytest
from streamlit.testing.v1 import AppTest

from backend.run_dir import RunDir
from tests.made_run import make_run
from tests.pages.hostile import FOLDER_NAME, TEXTS, make_hostile_run
from tests.pages.shown import words
from tests.pages.states import STATES, run_in
from tests.pages.test_hostile import check

VIEWER = Path(__file__).resolve().parents[2] / "pages" / "viewer.py"
SENTENCES = {
    "created": "Created and not started yet",
    "starting": "Starting",
    "running": "Running alpha",
    "paused": "Paused",
    "held": "Waiting for a decision: alpha is held",
    "failed": "Failed, 0 of 2 datasets done",
    "finished": "Finished, 2 of 2 datasets done",
    "supervisor dead": "Interrupted",
}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.delenv("HEADWAY_RUNS", raising=False)
    monkeypatch.setenv("HEADWAY_VIEW", str(tmp_path / "runs/demo"))
    return tmp_path


def open_viewer(run: RunDir | None = None, monkeypatch: pytest.MonkeyPatch | None = None) -> AppTest:
    """The page as a fresh tab shows it."""
    if run is not None and monkeypatch is not None:
        monkeypatch.setenv("HEADWAY_VIEW", str(run.root))
    return AppTest.from_file(VIEWER, default_timeout=30).run()


@pytest.mark.parametrize("state", sorted(STATES))
def test_each_state_has_its_sentence_and_nothing_to_press(state: str, folder: Path) -> None:
    with run_in(state, folder):
        at = open_viewer()
    assert not at.exception, [e.message for e in at.exception]
    shown = words(at)
    assert SENTENCES[state] in shown
    assert "alpha" in shown
    assert "simulated<" in shown
    assert not [each for kind in ("button", "text_input", "selectbox", "toggle") for each in at.get(kind)]


@pytest.mark.parametrize("state", sorted(STATES))
def test_no_path_no_pid_and_no_words_of_events_get_out(state: str, folder: Path) -> None:
    with run_in(state, folder):
        shown = words(open_viewer())
    for secret in (str(folder), "pid", "CUDA", "requests are sent again", "its prompt file has changed", "4321", "HTTP 400"):
        assert secret not in shown


@pytest.mark.parametrize("damage", ["config", "state", "ledger", "gone"])
def test_a_damaged_run_is_told_without_its_path(damage: str, folder: Path) -> None:
    with run_in("running", folder) as run:
        if damage == "gone":
            run.config.unlink()
        elif damage == "config":
            run.config.write_text("name = ")
        else:
            path = getattr(run, damage)
            for each in (path, path.with_name(f"{path.name}-wal")):
                each.write_bytes(b"no database" * 1000)
        at = open_viewer()
    assert not at.exception, [e.message for e in at.exception]
    shown = words(at)
    assert ("This run cannot be read at the moment." in shown) == (damage != "ledger")
    assert str(folder) not in shown
    assert "Traceback" not in shown


def test_another_run_is_never_named_whatever_the_address_says(folder: Path) -> None:
    make_run(folder, "secret-plan")
    with run_in("running", folder):
        at = AppTest.from_file(VIEWER, default_timeout=30)
        at.query_params["run"] = "secret-plan"
        at.run()
    assert "Running alpha" in words(at)
    assert "secret-plan" not in words(at)


def test_without_a_run_it_names_the_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HEADWAY_VIEW", raising=False)
    assert "python -m backend view RUN" in words(open_viewer())


@pytest.mark.parametrize("name", ["hostile", FOLDER_NAME])
def test_hostile_words_are_left_out_or_stay_text(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make_hostile_run(tmp_path)
    seen = check(open_viewer(RunDir(tmp_path / "runs" / name), monkeypatch))
    assert "alpha" in seen
    for text in ("iframe", "terminal", "template", "no spaces"):  # of prompts, answers, events, servers
        assert TEXTS[text] not in seen
