"""The file a server prints to."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from backend.job import server_log


def test_only_the_owner_may_read_it(tmp_path: Path) -> None:
    log = tmp_path / "logs" / "server-0.log"
    os.close(server_log.open_log(log))
    assert log.stat().st_mode & 0o777 == 0o600


def test_the_tail_begins_where_this_life_began(tmp_path: Path) -> None:
    log = tmp_path / "log"
    assert server_log.read_tail(log, 0) == ""
    log.write_text("former life\nthis life\n")
    assert server_log.read_tail(log, len("former life\n")) == "this life\n"
    assert server_log.read_tail(log, 10_000) == "former life\nthis life\n"  # the file was cut since


def test_only_the_end_of_a_long_log_is_read(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_bytes(b"x" * 3_000_000 + b"the end")
    tail = server_log.read_tail(log, 0)
    assert len(tail) < 300_000
    assert tail.endswith("the end")


def test_a_flooded_log_is_cut_and_the_writer_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server_log, "_LARGEST_BYTES", 1000)
    monkeypatch.setattr(server_log, "_KEPT_BYTES", 100)
    log = tmp_path / "log"
    writer = server_log.open_log(log)
    os.write(writer, b"x" * 1000)
    assert not server_log.cut_if_large(log)
    os.write(writer, b"last words")
    assert server_log.cut_if_large(log)
    former = tmp_path / "log.1"
    assert former.read_bytes() == b"x" * 90 + b"last words"
    assert former.stat().st_mode & 0o777 == 0o600
    os.write(writer, b"more")
    os.close(writer)
    assert log.read_bytes() == b"more"
