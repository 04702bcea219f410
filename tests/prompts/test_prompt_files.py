"""Finding, hashing and counting prompt files; refusing what cannot be read or has changed."""

from __future__ import annotations

import gzip
import hashlib
import os
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from backend.config import DatasetConfig, PromptFile
from backend.prompts import PromptFileError, PromptReader, scan, verify


def dataset(path: str | list[str], **fields: str) -> DatasetConfig:
    return DatasetConfig(name="B3", path=path, **fields)


def refusal(path: str | list[str], base: Path, **fields: str) -> str:
    with pytest.raises(PromptFileError) as caught:
        scan(dataset(path, **fields), base)
    return str(caught.value)


def test_a_file_is_hashed_and_its_lines_counted_without_the_blank_ones(tmp_path: Path) -> None:
    content = b'{"prompt": "a"}\n\n  \r\n{"prompt": "b"}\nnot json\n{"prompt": "c"}'
    (tmp_path / "p.jsonl").write_bytes(content)
    (file,) = scan(dataset("p.jsonl"), tmp_path)
    assert file == PromptFile(
        path=str(tmp_path / "p.jsonl"), bytes=len(content), sha256=hashlib.sha256(content).hexdigest(), records=4
    )


def test_lines_are_counted_right_across_the_chunks_in_which_a_file_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("backend.prompts.files.CHUNK_BYTES", 7)
    (tmp_path / "p.jsonl").write_bytes(b"".join(b"x" * length + b"\n" for length in range(30)))
    assert scan(dataset("p.jsonl"), tmp_path)[0].records == 29


def test_only_a_newline_ends_a_line(tmp_path: Path) -> None:
    (tmp_path / "p.jsonl").write_text('{"prompt": "a\u2028b\u0085c\x0bd"}\n', encoding="utf-8")
    assert scan(dataset("p.jsonl"), tmp_path)[0].records == 1


def test_gzip_and_parquet_are_counted_by_what_they_hold_and_hashed_as_they_lie(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl.gz").write_bytes(gzip.compress(b'{"prompt": "a"}\n' * 3))
    pq.write_table(pa.table({"prompt": ["x", "y"]}), tmp_path / "b.parquet")
    a, b = scan(dataset(["a.jsonl.gz", "b.parquet"]), tmp_path)
    assert (a.records, b.records) == (3, 2)
    assert a.sha256 == hashlib.sha256((tmp_path / "a.jsonl.gz").read_bytes()).hexdigest()


def test_an_empty_file_is_no_error_and_holds_nothing(tmp_path: Path) -> None:
    (tmp_path / "p.jsonl").touch()
    files = scan(dataset("p.jsonl"), tmp_path)
    assert files[0].records == 0
    assert list(PromptReader(dataset("p.jsonl"), files, tmp_path)) == []


def test_a_pattern_is_expanded_in_alphabetical_order_and_lists_keep_theirs(tmp_path: Path) -> None:
    for name in ("b.jsonl", "a.jsonl", "z.jsonl"):
        (tmp_path / name).write_text('{"prompt": "x"}\n')
    (tmp_path / "folder.jsonl").mkdir()
    names = [Path(file.path).name for file in scan(dataset(["z.jsonl", "[ab].jsonl"]), tmp_path)]
    assert names == ["z.jsonl", "a.jsonl", "b.jsonl"]


def test_a_file_whose_name_looks_like_a_pattern_is_itself(tmp_path: Path) -> None:
    (tmp_path / "p[1].jsonl").write_text('{"prompt": "x"}\n')
    assert scan(dataset("p[1].jsonl"), tmp_path)[0].records == 1


def test_what_cannot_be_read_is_refused_with_dataset_path_and_remedy(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "p.csv").touch()
    (tmp_path / "bad.jsonl.gz").write_bytes(b"no gzip at all")
    (tmp_path / "torn.jsonl.gz").write_bytes(gzip.compress(os.urandom(5000))[:-2000])
    (tmp_path / "bad.parquet").write_bytes(b"PAR1 no more")
    (tmp_path / "utf16.jsonl").write_bytes('{"prompt": "x"}\n'.encode("utf-16"))
    (tmp_path / "array.json").write_text('\n[{"prompt": "x"}]\n')
    expected = {
        "gone.jsonl": "does not exist",
        "*.nothing": "no file matches",
        "folder": "is a folder",
        "p.csv": "Convert it to JSONL or Parquet",
        "bad.jsonl.gz": "damaged or not gzip",
        "torn.jsonl.gz": "damaged or not gzip",
        "bad.parquet": "Make the file again",
        "utf16.jsonl": "iconv",
        "array.json": "jq -c",
    }
    for path, words in expected.items():
        message = refusal(path, tmp_path)
        assert "`B3`" in message
        assert str(tmp_path / path) in message
        assert words in message
        assert "\n" not in message


def test_a_file_named_twice_is_refused(tmp_path: Path) -> None:
    (tmp_path / "p.jsonl").write_text('{"prompt": "x"}\n')
    assert "named twice" in refusal(["p.jsonl", "*.jsonl"], tmp_path)


def test_parquet_without_the_columns_asked_for_is_refused_and_told_what_it_has(tmp_path: Path) -> None:
    pq.write_table(pa.table({"instruction": ["x"], "output": ["y"]}), tmp_path / "p.parquet")
    assert "its columns are instruction, output. Name the right one with prompt_field" in refusal("p.parquet", tmp_path)
    assert "no column key (id_field)" in refusal("p.parquet", tmp_path, prompt_field="instruction", id_field="key")


def test_an_unchanged_file_is_accepted_and_a_changed_one_refused(tmp_path: Path) -> None:
    path = tmp_path / "p.jsonl"
    path.write_text('{"prompt": "x"}\n')
    frozen = scan(dataset("p.jsonl"), tmp_path)
    verify(dataset("p.jsonl"), frozen, tmp_path)

    path.write_text('{"prompt": "y"}\n')
    with pytest.raises(PromptFileError, match=r"p\.jsonl changed.*same size and other content.*Restore.*or create a new run"):
        verify(dataset("p.jsonl"), frozen, tmp_path)

    path.write_text('{"prompt": "yy"}\n')
    with pytest.raises(PromptFileError, match="it had 16 bytes and now has 17"):
        verify(dataset("p.jsonl"), frozen, tmp_path)
    with pytest.raises(PromptFileError, match="it had 16 bytes and now has 17"):
        list(PromptReader(dataset("p.jsonl"), frozen, tmp_path))

    path.unlink()
    with pytest.raises(PromptFileError, match="does not exist"):
        verify(dataset("p.jsonl"), frozen, tmp_path)
    with pytest.raises(PromptFileError, match="does not exist"):
        list(PromptReader(dataset("p.jsonl"), frozen, tmp_path))


def test_a_pipe_and_a_device_are_refused_unread(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.jsonl")
    (tmp_path / "device.jsonl").symlink_to("/dev/zero")
    for name in ("pipe.jsonl", "device.jsonl"):
        assert f"{tmp_path / name} is no regular file but a pipe, a socket or a device." in refusal(name, tmp_path)


def test_a_home_of_nobody_is_a_path_that_does_not_exist(tmp_path: Path) -> None:
    assert "~nobody-of-this-name/p.jsonl does not exist" in refusal("~nobody-of-this-name/p.jsonl", tmp_path)
