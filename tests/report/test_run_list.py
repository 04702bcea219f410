"""All runs at a glance; what is no run is named."""

from __future__ import annotations

from pathlib import Path

import pytest

from backend.report.run_list import latest_run, read_runs, size_on_disk
from backend.run_dir import RunDirError
from tests.made_run import beat, holding_lock, job_status, make_run, write_event, write_open_row


def test_no_folder_has_no_runs(tmp_path: Path) -> None:
    found = read_runs(tmp_path / "nowhere", 0.0)
    assert (found.runs, found.broken) == ((), ())


def test_a_run_is_told_with_its_size_and_start(tmp_path: Path) -> None:
    run = make_run(tmp_path)
    write_open_row(run, "alpha", "a", 100)
    beat(run, job_status(), 2000.0)
    write_event(run, "told", 1000.0)
    (line,) = read_runs(run.root.parent, 2010.0).runs
    assert line.view.name == "demo"
    assert line.started_at is None  # no event says that it was started
    assert line.size_bytes >= sum(path.stat().st_size for path in (run.config, run.state, run.ledger))


def test_the_run_that_lived_last_comes_first(tmp_path: Path) -> None:
    for name, at in (("a", 1000.0), ("b", 3000.0), ("c", 2000.0)):
        beat(make_run(tmp_path, name), job_status(), at)
    make_run(tmp_path, "d")
    assert [line.view.name for line in read_runs(tmp_path / "runs", 4000.0).runs] == ["b", "c", "a", "d"]


def test_the_run_at_work_that_was_started_last_is_shown_where_none_is_named(tmp_path: Path) -> None:
    runs = [make_run(tmp_path, name) for name in ("a", "b", "c", "d")]
    for run, at in zip(runs, (1000.0, 4000.0, 2000.0, 3000.0), strict=True):
        beat(run, job_status(), at)
    assert latest_run([]) is None
    assert latest_run(runs) == runs[1]
    with holding_lock(runs[0], 500.0):
        assert latest_run(runs) == runs[0]
        with holding_lock(runs[2], 600.0):
            assert latest_run(runs) == runs[2]


def test_what_is_no_run_is_named_and_hides_no_other(tmp_path: Path) -> None:
    make_run(tmp_path, "good")
    runs = tmp_path / "runs"
    (runs / "half").mkdir()
    (runs / "bad\u202egniht").mkdir()
    (runs / "broken").mkdir()
    (runs / "broken" / "run.toml").write_text("name = ")
    (runs / "note.txt").write_text("a file is nobody's run")
    found = read_runs(runs, 0.0)
    assert [line.view.name for line in found.runs] == ["good"]
    assert [sentence.split(" ")[0] for sentence in found.broken] == ["broken:", "bad\\u202egniht", "half"]


def test_a_damaged_state_hides_no_other_run(tmp_path: Path) -> None:
    make_run(tmp_path, "good")
    bad = make_run(tmp_path, "bad")
    bad.state.write_bytes(b"no database" * 500)
    found = read_runs(tmp_path / "runs", 0.0)
    assert {line.view.name for line in found.runs} | {sentence.partition(":")[0] for sentence in found.broken} == {
        "good",
        "bad",
    }


def test_a_folder_that_cannot_be_read_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(RunDirError, match="cannot be read as the folder of runs"):
        read_runs(tmp_path / "file", 0.0)


def test_size_on_disk_does_not_follow_links(tmp_path: Path) -> None:
    (tmp_path / "there").mkdir()
    (tmp_path / "there" / "file").write_bytes(b"x" * 100_000)
    (tmp_path / "here").mkdir()
    (tmp_path / "here" / "link").symlink_to(tmp_path / "there")
    assert size_on_disk(tmp_path / "there") >= 100_000
    assert size_on_disk(tmp_path / "here") < 10_000
