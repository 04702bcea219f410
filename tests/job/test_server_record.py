"""What is written down about a server."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from backend.job.process_tree import ProcessMark
from backend.job.replica import StartRefused
from backend.job.server_record import ServerRecord, load_record, remove_record, save_record, write_launch

RECORD = ServerRecord(
    "0", "aa", "boot", "127.0.0.1", 31000, "secret", ["python"], 1.5, 7, ProcessMark(5, 6), [ProcessMark(8, 9)], None, 2.5
)


def test_a_record_comes_back_as_it_was_and_only_the_owner_may_read_it(tmp_path: Path) -> None:
    save_record(tmp_path, RECORD)
    assert load_record(tmp_path, "0") == RECORD
    assert (tmp_path / "0.json").stat().st_mode & 0o777 == 0o600
    assert [file.name for file in tmp_path.iterdir()] == ["0.json"]
    save_record(tmp_path, replace(RECORD, main=None))
    assert load_record(tmp_path, "0") == replace(RECORD, main=None)


@pytest.mark.parametrize("content", ["", "{", "[]", '{"replica": "0"}', "null"])
def test_a_record_that_cannot_be_understood_is_none(tmp_path: Path, content: str) -> None:
    assert load_record(tmp_path, "0") is None
    (tmp_path / "0.json").write_text(content)
    assert load_record(tmp_path, "0") is None


def test_the_key_is_not_in_its_representation() -> None:
    assert "secret" not in repr(RECORD)


def test_a_launch_that_cannot_be_written_down_is_refused(tmp_path: Path) -> None:
    with pytest.raises(StartRefused, match=r"cannot be written: No such file or directory\. Make room there"):
        write_launch(tmp_path / "gone", RECORD, {"0.yaml": "x"})


def test_a_record_is_removed_with_its_key_file(tmp_path: Path) -> None:
    write_launch(tmp_path, RECORD, {"0.yaml": "api-key: x"})
    assert (tmp_path / "0.yaml").stat().st_mode & 0o777 == 0o600
    remove_record(tmp_path, "0")
    remove_record(tmp_path, "0")
    assert list(tmp_path.iterdir()) == []


def test_what_a_killed_writer_left_of_a_record_is_removed_as_well(tmp_path: Path) -> None:
    for name in ("0.json.tmp", "0.yaml.tmp", "1.json"):
        (tmp_path / name).touch()
    remove_record(tmp_path, "0")
    assert [path.name for path in tmp_path.iterdir()] == ["1.json"]
