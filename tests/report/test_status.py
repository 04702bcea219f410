"""Counts come from the ledger, states from the heartbeat, and both survive the loss of the other."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from backend.heartbeat import SupervisorState
from backend.records import DatasetState, DatasetStatus, EngineState, ReplicaStatus, RunPhase
from backend.report.counts import read_counts
from backend.report.status import read_status, to_json
from backend.report.status_text import list_text, status_text, summary, supervisor_sentence
from backend.report.views import RunView
from backend.report.waiting import Goal, judge_wait, parse_goal
from backend.run_dir import RunDir, open_ledger
from tests.made_run import (
    beat,
    holding_lock,
    job_status,
    make_run,
    supersede,
    write_event,
    write_open_row,
    write_sealed,
)

NOW = 1_000_000.0


@pytest.fixture
def run(tmp_path: Path) -> RunDir:
    return make_run(tmp_path)


def fill_ledger(run: RunDir) -> None:
    """alpha: 100 sealed and 2 open, one of each replaced; beta: nothing."""
    write_sealed(run, "alpha", 0, rows=60, prompt_tokens=600, completion_tokens=6000, rejected=2)
    write_sealed(run, "alpha", 1, rows=40, prompt_tokens=400, completion_tokens=4000)
    write_open_row(run, "alpha", "a", 50)
    write_open_row(run, "alpha", "b", 0, finish_reason="rejected")
    supersede(run, "alpha", "a", 50)
    supersede(run, "alpha", "sealed", 100)


def view_of(run: RunDir, *, lives: bool = True, age_s: float = 0.5) -> RunView:
    beat(run, job_status(), at=NOW - age_s)
    if not lives:
        run.lock.touch()
        return read_status(run, NOW)
    with holding_lock(run, changed_at=NOW - 3600):
        return read_status(run, NOW)


def test_counts_are_sealed_and_open_without_superseded(run: RunDir) -> None:
    fill_ledger(run)
    counts = read_counts(run)
    assert counts is not None
    alpha = counts["alpha"]
    assert (alpha.finished_samples, alpha.completion_tokens, alpha.prompt_tokens) == (100, 9900, 1000)
    assert (alpha.rejected, alpha.superseded_samples) == (3, 2)
    assert "beta" not in counts


def test_counts_are_right_though_the_supervisor_is_dead(run: RunDir) -> None:
    fill_ledger(run)
    view = view_of(run, lives=False, age_s=120)
    assert view.supervisor.state is SupervisorState.DEAD
    assert view.supervisor.pid is None
    assert view.totals.finished_samples == 100
    assert view.datasets[0].mean_completion_tokens == pytest.approx(9900 / 97)
    text = status_text(view)
    assert "demo was interrupted: 100 samples with 9.90k tokens finished." in text
    assert "dead; its last sign of life was 2 min 00 s ago" in text
    assert f"python -m backend start {run.root}" in text


def test_a_run_that_was_never_started_has_no_samples_and_no_states(run: RunDir) -> None:
    view = read_status(run, NOW)
    assert view.supervisor.state is SupervisorState.NEVER_STARTED
    assert (view.phase, view.in_flight, view.notes) == (None, None, ())
    assert [(d.state, d.finished_samples, d.total_samples) for d in view.datasets] == [(None, 0, 5), (None, 0, 3)]
    assert "has not been started: 0 samples with 0 tokens finished." in status_text(view)


def test_a_living_run_is_told_in_one_sentence_and_aligned_columns(run: RunDir) -> None:
    fill_ledger(run)
    write_event(run, "The engine is ready.", at=NOW - 60)
    view = view_of(run)
    lines = status_text(view).splitlines()
    assert lines[0] == "demo runs alpha: 100 samples with 9.90k tokens finished, 1,234 tokens/s."
    head = next(line for line in lines if line.startswith("dataset"))
    alpha = next(line for line in lines if line.startswith("alpha"))
    end = head.index("rejected") + len("rejected")
    assert alpha[:end].split()[-1] == "3"
    assert len(alpha) == len(head)
    assert lines[-1] == "1970-01-12 13:45:40 UTC  The engine is ready."


def test_the_order_is_the_supervisors(run: RunDir) -> None:
    beat(run, job_status(order=("beta", "alpha")), at=NOW)
    assert [d.name for d in read_status(run, NOW).datasets] == ["beta", "alpha"]


def test_without_state_the_ledger_still_counts(run: RunDir) -> None:
    fill_ledger(run)
    run.lock.touch()
    view = read_status(run, NOW)
    assert view.supervisor.state is SupervisorState.DEAD
    assert view.totals.completion_tokens == 9900
    assert view.datasets[0].state is None


def test_a_damaged_state_is_a_note_and_hides_nothing_else(run: RunDir) -> None:
    fill_ledger(run)
    run.state.write_bytes(b"this is no database" * 100)
    view = read_status(run, NOW)
    assert view.totals.finished_samples == 100
    assert len(view.notes) == 1
    assert "state.sqlite cannot be read" in view.notes[0]
    assert "Note: " in status_text(view)


def test_a_lost_ledger_makes_counts_unknown_not_zero(run: RunDir) -> None:
    view = view_of(run, lives=False)
    assert view.totals.finished_samples is None
    assert view.datasets[0].finished_samples is None
    assert "ledger.sqlite is missing" in view.notes[0]
    assert "how much is finished is not known" in summary(view)


def test_an_empty_ledger_is_one_that_has_nothing(run: RunDir) -> None:
    run.ledger.touch()
    assert read_counts(run) == {}


def test_what_a_terminal_would_obey_is_escaped(run: RunDir) -> None:
    write_event(run, "bad file \x1b[2J\u202e\x9b31m\nname", at=NOW)
    text = status_text(view_of(run))
    assert "\x1b" not in text
    assert "\u202e" not in text
    assert "\x9b" not in text
    assert r"bad file \x1b[2J\u202e\x9b31m\nname" in text


def test_json_holds_no_character_a_terminal_would_obey(run: RunDir) -> None:
    write_event(run, "bad \x1b[2J \x7f \u202e", at=NOW)
    text = to_json(view_of(run))
    assert text.isascii()
    assert all(c.isprintable() or c == "\n" for c in text)
    assert json.loads(text)["events"][0]["message"] == "bad \x1b[2J \x7f \u202e"


def test_a_supervisor_that_does_not_answer_is_told_with_its_pid(run: RunDir) -> None:
    view = view_of(run, age_s=30)
    assert view.supervisor.state is SupervisorState.NOT_ANSWERING
    assert f"not answering (pid {view.supervisor.pid}); its last sign of life was 30 s ago" in supervisor_sentence(view)


def test_a_supervisor_that_can_write_no_heartbeat_is_alive_and_says_why(run: RunDir) -> None:
    with holding_lock(run, changed_at=NOW):
        beat(run, job_status(), at=NOW - 600)
        run.lock.write_text("77\nstate.sqlite cannot be written: the disk is full.")
        os.utime(run.lock, (NOW - 2, NOW - 2))
        view = read_status(run, NOW)
    text = status_text(view)
    assert (view.supervisor.state, view.supervisor.pid) == (SupervisorState.ALIVE, 77)
    assert "the supervisor lives and cannot write how it goes. state.sqlite cannot be written: the disk is full." in text


def test_a_list_names_the_run_that_cannot_be_read(run: RunDir) -> None:
    text = list_text([read_status(run, NOW)], [("broken", "run.toml:\x1b1")])
    assert text.splitlines()[1].startswith("demo  –")
    assert text.splitlines()[2] == r"broken: run.toml:\x1b1"


# -- waiting -------------------------------------------------------------------------------------------------------------


def ended(run: RunDir, phase: RunPhase) -> RunView:
    done = (DatasetStatus("alpha", DatasetState.DONE), DatasetStatus("beta", DatasetState.KILLED))
    beat(run, job_status(phase=phase, datasets=done, replicas=()), at=NOW)
    return read_status(run, NOW)


def test_a_wait_goes_on_while_the_run_does(run: RunDir) -> None:
    assert judge_wait(view_of(run), Goal()) is None
    assert judge_wait(view_of(run, age_s=60), Goal()) is None


@pytest.mark.parametrize(("phase", "reached"), [("finished", True), ("stopped", True), ("failed", False)])
def test_a_wait_ends_with_the_run(run: RunDir, phase: str, reached: bool) -> None:
    verdict = judge_wait(ended(run, RunPhase(phase)), Goal())
    assert verdict is not None
    assert verdict.reached is reached


def test_a_failed_run_is_told_with_its_last_error(run: RunDir) -> None:
    write_event(run, "Out of GPU memory.", at=NOW, severity="error")
    verdict = judge_wait(ended(run, RunPhase.FAILED), Goal())
    assert verdict is not None
    assert "Out of GPU memory." in verdict.message


def test_nobody_waits_for_the_dead(run: RunDir) -> None:
    verdict = judge_wait(view_of(run, lives=False), Goal())
    assert verdict is not None
    assert not verdict.reached
    assert "dead" in verdict.message


def test_ready_is_reached_by_one_ready_replica_of_a_living_run(run: RunDir) -> None:
    verdict = judge_wait(view_of(run), Goal(ready=True))
    assert verdict is not None
    assert verdict.reached
    starting = (ReplicaStatus("0", EngineState.STARTING),)
    with holding_lock(run, changed_at=NOW):
        beat(run, job_status(replicas=starting), at=NOW)
        assert judge_wait(read_status(run, NOW), Goal(ready=True)) is None


def test_a_datasets_state_is_reached_also_when_the_run_has_ended(run: RunDir) -> None:
    view = ended(run, RunPhase.FINISHED)
    reached = judge_wait(view, parse_goal("alpha=done"))
    missed = judge_wait(view, parse_goal("alpha=paused"))
    assert reached is not None
    assert reached.reached
    assert missed is not None
    assert not missed.reached


@pytest.mark.parametrize("text", ["", "done", "alpha=", "=done", "alpha=sleeping"])
def test_a_goal_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is none of"):
        parse_goal(text)


def test_an_empty_ledger_beside_shards_is_told(tmp_path: Path) -> None:
    run = make_run(tmp_path)
    open_ledger(run).close()
    run.create_folders()
    assert read_status(run, 1.0).notes == ()
    shard = run.shard("alpha", 1)
    shard.parent.mkdir(parents=True)
    shard.write_bytes(b"PAR1")

    assert "names none of the files in" in read_status(run, 1.0).notes[0]
