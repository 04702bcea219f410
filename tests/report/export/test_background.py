"""Exports that a page starts: in a process of their own, seen by every tab, and cancelled without a trace."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from backend.records import Outcome
from backend.report.export.background import ExportTask, TaskState, cancel_export, exports_of, start_export
from backend.report.export.options import ExportError, ExportOptions, Flagged, Format
from backend.report.export.work import export
from backend.run_dir import RunDir
from tests.made_run import make_run
from tests.report.export.handed_over import read_rows, sample, seal


@pytest.fixture
def run(tmp_path: Path) -> RunDir:
    run = make_run(tmp_path)
    seal(run, [sample(number) for number in range(10)])
    return run


def ended(run: RunDir, number: int) -> ExportTask:
    deadline = time.monotonic() + 60
    while True:
        task = next(task for task in exports_of(run) if task.number == number)
        if task.state is not TaskState.RUNNING:
            return task
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_an_export_becomes_what_was_asked_for_and_says_so(run: RunDir, tmp_path: Path) -> None:
    options = ExportOptions(
        Format.SHAREGPT, tmp_path / "out", ("alpha",), (Outcome.OK, Outcome.TRUNCATED), 0.0, True, Flagged.KEEP, True
    )
    task = ended(run, start_export(run, options).number)
    assert (task.state, task.words) == (TaskState.DONE, "10 samples, 0 of them held out.")
    assert task.progress is not None
    assert (task.progress.total, len(read_rows(tmp_path / "out"))) == (10, 10)
    again = ended(run, start_export(run, options).number)
    assert again.state is TaskState.FAILED
    assert "is there already" in again.words
    assert [one.number for one in exports_of(run)][:2] == [again.number, task.number]


def test_one_that_is_cancelled_leaves_nothing_and_two_to_one_folder_are_refused(run: RunDir, tmp_path: Path) -> None:
    (tmp_path / "there").mkdir()
    options = ExportOptions(Format.MESSAGES, tmp_path / "there/out")
    number = start_export(run, options).number
    with pytest.raises(ExportError, match="at work already"):
        start_export(run, options)
    cancel_export(run, number)
    assert ended(run, number).state is TaskState.CANCELLED
    assert list((tmp_path / "there").iterdir()) == []


def test_a_folder_that_cannot_be_is_refused_in_words(run: RunDir) -> None:
    with pytest.raises(ExportError, match="NUL character"):
        start_export(run, ExportOptions(Format.SHAREGPT, Path("a\0b")))
    with pytest.raises(ExportError, match="/ is no folder"):
        export(run, ExportOptions(Format.SHAREGPT, Path("/")), now=0.0)
