"""A press acts once, however often it comes and in however many tabs; a kill asks first; what is refused is told."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from streamlit.testing.v1 import AppTest

from backend.control import ControlError
from backend.control.intents import want_run
from backend.control.start import StartOutcome, StartResult
from backend.records import DatasetState, RunPhase
from backend.run_dir import RunDir, open_ledger, open_state
from pages import buttons
from tests.made_run import beat, holding_lock, job_status, make_run
from tests.pages.shown import open_page, words


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> RunDir:
    monkeypatch.setenv("HEADWAY_RUNS", str(tmp_path / "runs"))
    return make_run(tmp_path)


@pytest.fixture
def at_work(run: RunDir) -> Iterator[RunDir]:
    """A supervisor lives: alpha runs, beta waits."""
    beat(run, job_status(), time.time())
    with holding_lock(run, time.time()):
        yield run


def wishes(run: RunDir) -> list[tuple[str, str]]:
    with closing(open_state(run)) as con:
        return [(row["subject"], row["value"]) for row in con.execute("SELECT subject, value FROM intents ORDER BY id")]


def answer(run: RunDir, accepted: bool, message: str, at: float) -> None:
    """The supervisor's answer to the last wish."""
    with closing(open_state(run)) as con:
        con.execute("INSERT INTO intent_answers SELECT MAX(id), ?, ?, ? FROM intents", (at, int(accepted), message))


def tab() -> AppTest:
    return open_page("overview.py", run="demo")


def press(at: AppTest, label: str, which: int = 0) -> AppTest:
    return [b for b in at.button if b.label == label][which].click().run()


def labels(at: AppTest) -> list[str]:
    return [b.label for b in at.button]


def test_a_press_writes_one_wish_with_who(at_work: RunDir) -> None:
    at = press(tab(), "Pause")
    assert wishes(at_work) == [("dataset:alpha", '{"want": "paused", "now": false}')]
    with closing(open_state(at_work)) as con:
        (who,) = con.execute("SELECT who FROM intents").fetchone()
    assert who.startswith("page")
    assert "pausing…" in words(at)


def test_until_the_answer_there_is_no_other_button_under_the_pointer(at_work: RunDir) -> None:
    at = press(tab(), "Pause")
    (asked,) = [b for b in at.button if b.label == "Pausing…"]
    assert asked.disabled
    at.run()
    assert len(wishes(at_work)) == 1
    answer(at_work, True, "alpha will pause.", time.time() - 5)
    beat(at_work, job_status(), time.time())
    assert "Pausing…" not in labels(at.run())


def test_two_tabs_that_press_the_same_make_one_wish(at_work: RunDir) -> None:
    one, other = tab(), tab()
    press(one, "Pause")
    press(other, "Pause")
    assert len(wishes(at_work)) == 1


def test_a_later_press_is_a_new_wish(at_work: RunDir) -> None:
    press(tab(), "Pause")
    answer(at_work, False, "alpha cannot be paused now.", time.time() - 5)
    press(tab(), "Pause")
    assert [subject for subject, _ in wishes(at_work)] == ["dataset:alpha", "dataset:alpha"]


def test_the_same_wish_in_another_life_of_state_sqlite_is_a_new_one(at_work: RunDir) -> None:
    press(tab(), "Pause")
    with closing(open_state(at_work)) as con:
        (first,) = con.execute("SELECT token FROM intents").fetchone()
        con.execute("DELETE FROM intents")
    with closing(open_ledger(at_work)) as ledger:
        ledger.execute(
            "INSERT INTO accepted_intents (token, at, who, subject, action, value) VALUES (?, 1, 'x', 'y', 'state', '{}')",
            (first,),
        )
    press(tab(), "Pause")
    with closing(open_state(at_work)) as con:
        (second,) = con.execute("SELECT token FROM intents").fetchone()
    assert second != first


def test_a_refusal_is_told_in_the_supervisors_words(at_work: RunDir) -> None:
    at = press(tab(), "Pause")
    answer(at_work, False, "alpha is <b>done</b>.", time.time() - 5)
    assert "Refused: alpha is <b>done</b>." in [t.value for t in at.run().text]


def test_pause_all_pauses_what_may_run_and_resume_all_what_is_paused(at_work: RunDir) -> None:
    press(tab(), "Pause all")
    assert [subject for subject, _ in wishes(at_work)] == ["dataset:alpha", "dataset:beta"]
    for subject in ("dataset:alpha", "dataset:beta"):
        with closing(open_state(at_work)) as con:
            con.execute(
                "INSERT INTO intent_answers SELECT id, ?, 1, '' FROM intents WHERE subject = ?", (time.time() - 5, subject)
            )
    status = job_status()
    paused = tuple(d.__class__(d.name, DatasetState.PAUSED) for d in status.datasets)
    beat(at_work, job_status(datasets=paused), time.time())
    at = tab()
    assert labels(at).count("Resume") == 2
    press(at, "Resume all")
    assert [value for _, value in wishes(at_work)][2:] == ['{"want": "running"}'] * 2


def test_a_kill_asks_first_and_says_what_stays(at_work: RunDir) -> None:
    at = press(tab(), "Kill")
    assert wishes(at_work) == []
    (said,) = [t.value for t in at.text if "in flight" in t.value]
    assert said == (
        "alpha: 6 requests in flight are aborted.\n0 finished samples (0 tokens) stay. "
        "It can be revived later and goes on from there."
    )
    press(at, "Kill alpha")
    assert wishes(at_work) == [("dataset:alpha", '{"want": "killed"}')]


def test_a_cancelled_kill_kills_nothing(at_work: RunDir) -> None:
    at = press(press(tab(), "Kill"), "Cancel")
    assert wishes(at_work) == []
    assert "Kill alpha" not in labels(at)


def test_a_stop_asks_first(at_work: RunDir) -> None:
    at = press(tab(), "Stop")
    assert wishes(at_work) == []
    press(at, "Stop the run")
    assert wishes(at_work) == [("run", '{"want": "stopped", "now": false}')]


def test_a_killed_dataset_can_be_revived(at_work: RunDir) -> None:
    killed = tuple(d.__class__(d.name, DatasetState.KILLED) for d in job_status().datasets)
    beat(at_work, job_status(datasets=killed), time.time())
    at = tab()
    assert "Kill" not in labels(at)
    press(at, "Revive")
    assert wishes(at_work) == [("dataset:alpha", '{"want": "running"}')]


def test_a_run_that_ended_with_a_kill_can_be_revived_and_started(run: RunDir) -> None:
    killed = tuple(d.__class__(d.name, DatasetState.KILLED) for d in job_status().datasets)
    beat(run, job_status(phase=RunPhase.FINISHED, datasets=killed, replicas=()), time.time())
    run.lock.touch()
    at = tab()
    assert labels(at) == ["Revive", "Revive"]
    press(at, "Revive")
    assert "Start" in labels(tab())


def test_three_tabs_that_press_start_wish_once(run: RunDir, monkeypatch: pytest.MonkeyPatch) -> None:
    def start(of: RunDir, who: str, *, token: str) -> StartResult:
        return StartResult(StartOutcome.STARTED, want_run(of, "running", who, token=token), 1)

    monkeypatch.setattr(buttons, "start", start)
    for at in [tab() for _ in range(3)]:
        press(at, "Start")
    assert wishes(run) == [("run", '{"want": "running"}')]


def test_a_start_that_fails_says_why(run: RunDir, monkeypatch: pytest.MonkeyPatch) -> None:
    def start(of: RunDir, who: str, *, token: str) -> StartResult:
        intent = want_run(of, "running", who, token=token)
        return StartResult(StartOutcome.FAILED, intent, None, "The supervisor left with exit code 1: no GPU.")

    monkeypatch.setattr(buttons, "start", start)
    assert "demo could not be started. The supervisor left with exit code 1: no GPU." in words(press(tab(), "Start"))


def test_a_wish_that_cannot_be_written_is_told(at_work: RunDir, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise ControlError("The wish could not be written: the disk is full; make room.")

    monkeypatch.setattr(buttons, "want_dataset", refuse)
    assert "the disk is full; make room." in words(press(tab(), "Pause"))
