"""Why a dataset is held is read from the ledger, also where nobody works on the run, until somebody wanted to go on."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

from backend.holds import DAMAGED, Example, GuardKind, Hold, fact_name
from backend.records import Facts
from backend.report.holds import read_example, read_hold
from backend.run_dir import RunDir, open_ledger
from tests.finished_samples import add_open, sample, seal
from tests.made_run import make_run, write_hold

HOLD = Hold(GuardKind.BAD, 0.9, 0.2, "Of the 14 …", 5.0, 0, (Example(3, 0, 1, "empty", 6, 1_700_000_003.2, 1_700_000_004.2),))


def accept(run: RunDir, subject: str) -> None:
    with closing(open_ledger(run)) as con:
        con.execute(
            "INSERT INTO accepted_intents (token, at, who, subject, action, value) VALUES (?, 1, 'x', ?, 'state', ?)",
            (subject, subject, '{"want": "running"}'),
        )


def test_a_hold_is_told_until_it_is_lifted(tmp_path: Path) -> None:
    run = make_run(tmp_path)
    assert read_hold(run, "alpha") is None
    write_hold(run, "alpha", HOLD)
    assert read_hold(run, "alpha") == HOLD
    assert read_hold(run, "beta") is None
    accept(run, "dataset:beta")
    assert read_hold(run, "alpha") == HOLD
    accept(run, "dataset:alpha")
    assert read_hold(run, "alpha") is None


def test_a_damaged_hold_is_told_as_one(tmp_path: Path) -> None:
    run = make_run(tmp_path)
    write_hold(run, "alpha", HOLD)
    with closing(open_ledger(run)) as con:
        con.execute("UPDATE facts SET value = 'x' WHERE key = ?", (fact_name("alpha"),))
    hold = read_hold(run, "alpha")
    assert hold is not None
    assert hold.reason == DAMAGED


def test_the_text_of_an_example_is_found_open_and_sealed_and_may_be_gone(tmp_path: Path) -> None:
    run = make_run(tmp_path)
    row = sample(3, facts=Facts(answer_tokens=0))
    example = Example(3, 0, 1, "empty", 6, row.started_at, row.finished_at)
    assert read_example(run, "alpha", example) is None
    add_open(run, [row])
    found = read_example(run, "alpha", example)
    assert found is not None
    assert found.row.sample_id == row.sample_id
    seal(run, "alpha", 1)
    assert read_example(run, "alpha", example) == found
