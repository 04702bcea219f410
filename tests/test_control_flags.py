"""Flags on samples are written once each, kept, and taken away."""

from __future__ import annotations

from pathlib import Path

import pytest

from backend.control import ControlError
from backend.control.flags import LONGEST_NOTE, flag_sample, unflag_sample
from backend.report.flags import read_flag
from tests.finished_samples import sample
from tests.made_run import make_run


def test_a_flag_is_kept_with_who_and_why_and_a_second_one_replaces_it(tmp_path: Path) -> None:
    run = make_run(tmp_path)
    assert read_flag(run, sample(1)) is None
    for note in ("odd", "very odd \ud800"):
        flag_sample(run, "alpha", "s000001", 0, 1, note=note, who="page:ada")
    flag = read_flag(run, sample(1))
    assert flag is not None
    assert (flag.who, flag.note) == ("page:ada", "very odd ?")
    assert read_flag(run, sample(1, attempt=2)) is None
    for _ in range(2):
        unflag_sample(run, "alpha", "s000001", 0, 1)
    assert read_flag(run, sample(1)) is None


def test_a_sample_whose_id_is_no_utf8_can_be_flagged(tmp_path: Path) -> None:
    run = make_run(tmp_path)
    row = sample(1, sample_id="a\ud835b")
    flag_sample(run, row.dataset, row.sample_id, row.turn, row.attempt, note="", who="page")
    assert read_flag(run, row) is not None


def test_a_note_that_is_too_long_is_refused(tmp_path: Path) -> None:
    run = make_run(tmp_path)
    with pytest.raises(ControlError, match="at most 2,000 are kept"):
        flag_sample(run, "alpha", "s000001", 0, 1, note="x" * (LONGEST_NOTE + 1), who="page")


def test_a_damaged_state_is_told_in_words(tmp_path: Path) -> None:
    run = make_run(tmp_path)
    run.state.write_bytes(b"no database" * 1000)
    with pytest.raises(ControlError, match="could not be written"):
        flag_sample(run, "alpha", "s000001", 0, 1, note="", who="page")
