"""The end of a log is found without reading it whole, and followed through rotation."""

from __future__ import annotations

from pathlib import Path

import pytest

from backend.report.logs import find_log, follow, last_lines
from backend.run_dir import RunDir, RunDirError


def test_the_last_lines_of_a_long_log(tmp_path: Path) -> None:
    log = tmp_path / "long.log"
    log.write_text("".join(f"line {i} {'x' * 200}\n" for i in range(5000)))
    lines, end = last_lines(log, 3)
    assert [line.split()[1] for line in lines] == ["4997", "4998", "4999"]
    assert end == log.stat().st_size
    assert last_lines(log, 0)[0] == []
    assert len(last_lines(log, 10_000)[0]) == 5000


def test_of_a_progress_bar_the_last_state_is_shown(tmp_path: Path) -> None:
    log = tmp_path / "bar.log"
    log.write_bytes(b"load 0%\rload 50%\rload 100%\nnext\r\nbad \xff byte")
    assert last_lines(log, 9)[0] == ["load 100%", "next", "bad � byte"]


def test_following_goes_on_after_rotation_and_truncation(tmp_path: Path) -> None:
    log = tmp_path / "a.log"
    log.write_text("old\n")
    following = follow(log, 4)
    with log.open("a") as more:
        more.write("added\n")
    assert next(following) == "added"
    log.rename(tmp_path / "a.log.1")
    log.write_text("after rotation\n")
    assert next(following) == "after rotation"
    log.write_text("cut\n")
    assert next(following) == "cut"
    following.close()


def test_an_unknown_server_names_those_with_logs(tmp_path: Path) -> None:
    run = RunDir(tmp_path / "run")
    run.logs.mkdir(parents=True)
    with pytest.raises(RunDirError, match="never started"):
        find_log(run, None)
    run.server_log("0").touch()
    assert find_log(run, "0") == run.server_log("0")
    with pytest.raises(RunDirError, match="server logs there are: 0"):
        find_log(run, "../../etc/passwd")
