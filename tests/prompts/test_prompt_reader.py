"""Prompts read lazily, in order, with ids that are exact and the same on every pass; hostile files."""

from __future__ import annotations

import gzip
import json
import tracemalloc
from collections.abc import Iterable
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from backend.config import DatasetConfig
from backend.prompts import BadLine, PromptReader, next_turn, preview, scan
from backend.records import Prompt


def reader(base: Path, path: str | list[str] = "p.jsonl", **fields: Any) -> PromptReader:
    dataset = DatasetConfig.model_validate({"name": "d", "path": path, **fields})
    return PromptReader(dataset, scan(dataset, base), base)


def read_bytes(base: Path, content: bytes, **fields: Any) -> list[Prompt | BadLine]:
    (base / "p.jsonl").write_bytes(content)
    return list(reader(base, **fields))


def read(base: Path, *records: Any, **fields: Any) -> list[Prompt | BadLine]:
    return read_bytes(base, b"".join(json.dumps(record).encode() + b"\n" for record in records), **fields)


def ids(items: Iterable[Prompt | BadLine]) -> list[str]:
    return [item.sample_id for item in items if isinstance(item, Prompt)]


def texts(items: Iterable[Prompt | BadLine]) -> list[str]:
    return [item.messages[-1]["content"] for item in items if isinstance(item, Prompt)]


def bad_lines(items: Iterable[Prompt | BadLine]) -> list[tuple[int, str]]:
    return [(item.line, item.reason) for item in items if isinstance(item, BadLine)]


def test_a_bad_line_names_file_line_and_reason_and_the_rest_is_read(tmp_path: Path) -> None:
    lines = [
        b'{"prompt": "first"}',
        b'{"prompt": "torn',
        b"",
        b'{"prompt": "caf\xe9"}',
        b'{"prompt": "x"} {"prompt": "y"}',
        b"[1, 2]",
        b'{"prompt": NaN}',
        b'{"messages": [{"role": "user", "content": "x", "weight": 1e999}]}',
        b'{"question": null}',
        b"[" * 100_000,
        b'{"id": ' + b"9" * 10_000 + b', "prompt": "x"}',
        b'{"prompt": "last"}',
    ]
    items = read_bytes(tmp_path, b"\n".join(lines))
    assert texts(items) == ["first", "last"]
    assert [item.position for item in items if isinstance(item, Prompt)] == [0, 1]
    assert all(item.file == str(tmp_path / "p.jsonl") for item in items if isinstance(item, BadLine))
    found = bad_lines(items)
    assert [line for line, _ in found] == [2, 4, 5, 6, 7, 8, 9, 10, 11]
    words = ["not valid JSON", "not valid UTF-8 (byte 16", "something follows the object", "found a list", "NaN is not JSON"]
    words += ["the prompt is not JSON", "no prompt", "nested too deeply", "not valid JSON"]
    for (_, reason), expected in zip(found, words, strict=True):
        assert expected in reason


def test_a_last_line_torn_within_json_is_bad(tmp_path: Path) -> None:
    items = read_bytes(tmp_path, b'{"prompt": "a"}\n{"prompt": "b')
    assert texts(items) == ["a"]
    assert "the file ends within this line" in bad_lines(items)[0][1]


def test_a_last_line_torn_within_a_character_is_bad(tmp_path: Path) -> None:
    items = read_bytes(tmp_path, b'{"prompt": "a"}\n{"prompt": "\xe2\x82')
    assert texts(items) == ["a"]
    assert "UTF-8" in bad_lines(items)[0][1]


def test_a_last_line_without_newline_is_good(tmp_path: Path) -> None:
    assert texts(read_bytes(tmp_path, b'{"prompt": "a"}\r\n{"prompt": "b"}')) == ["a", "b"]


def test_a_byte_order_mark_is_passed_over(tmp_path: Path) -> None:
    assert texts(read_bytes(tmp_path, b'\xef\xbb\xbf{"prompt": "a"}\n')) == ["a"]


def test_unicode_is_exact(tmp_path: Path) -> None:
    raw = '{"prompt": "a\u2028b\u0085c\U0001f600"}\n{"prompt": "\\ud835 and \\u0000"}\n'.encode()
    assert texts(read_bytes(tmp_path, raw)) == ["a\u2028b\u0085c\U0001f600", "\ud835 and \x00"]


def test_ids_beyond_63_bits_are_exact(tmp_path: Path) -> None:
    numbers = [2**63, 2**63 + 1, 10**30, -1, 0]
    assert ids(read(tmp_path, *({"id": n, "prompt": "x"} for n in numbers))) == [str(n) for n in numbers]


@pytest.mark.parametrize("field", ["id", "uuid", "task_id", "sample_id", "primary_id"])
def test_a_known_id_field_is_taken(tmp_path: Path, field: str) -> None:
    assert ids(read(tmp_path, {field: "HumanEval/0", "prompt": "x"})) == ["HumanEval/0"]


def test_what_is_no_id_is_not_taken_for_one(tmp_path: Path) -> None:
    values: list[Any] = [None, True, 1.5, "", ["x"], "\ud835", "x" * 513]
    found = ids(read(tmp_path, *({"id": value, "prompt": f"p{i}"} for i, value in enumerate(values))))
    assert len(set(found)) == len(values)
    assert all(len(sample_id) == 25 and sample_id.startswith("h") for sample_id in found)


def test_a_named_id_field_must_be_there(tmp_path: Path) -> None:
    items = read(tmp_path, {"key": "k", "prompt": "x"}, {"id": 1, "prompt": "x"}, id_field="key")
    assert ids(items) == ["k"]
    assert "`key` (id_field) must be" in bad_lines(items)[0][1]


def test_repeated_ids_get_occurrence_numbers_that_collide_with_nothing(tmp_path: Path) -> None:
    wanted = ["x", "x", "x#2", "x", "y#2", "y", "y", 7, "7"]
    found = ids(read(tmp_path, *({"id": value, "prompt": "p"} for value in wanted)))
    assert found[:2] == ["x", "x#2"]
    assert found[4:] == ["y#2", "y", "y#3", "7", "7#2"]
    assert len(set(found)) == len(wanted)


def test_equal_prompts_are_several_samples(tmp_path: Path) -> None:
    one, two, three, other = ids(read(tmp_path, *({"prompt": text} for text in ("same", "same", "same", "other"))))
    assert (two, three) == (f"{one}#2", f"{one}#3")
    assert other not in (one, two, three)
    assert ids(read(tmp_path, *({"id": i, "prompt": "same"} for i in range(3)))) == ["0", "1", "2"]


def test_the_same_prompt_has_the_same_hash_in_each_form_and_with_any_system_prompt(tmp_path: Path) -> None:
    text = 'é "quoted"\n\ud835'
    turns = [{"content": text, "role": "user"}]
    forms = [{"prompt": text}, {"messages": turns}, {"conversations": [{"from": "human", "value": text}]}]
    (plain,) = ids(read(tmp_path, forms[0]))
    for form in forms:
        assert ids(read(tmp_path, form, system_prompt="be brief")) == [plain]
    tool = {"type": "function", "function": {"name": "f"}}
    assert ids(read(tmp_path, {"prompt": text, "tools": [tool]})) != [plain]


def test_the_system_prompt_stands_first_unless_the_conversation_has_one(tmp_path: Path) -> None:
    own = [{"role": "system", "content": "own"}, {"role": "user", "content": "u"}]
    first, second = read(tmp_path, {"prompt": "x"}, {"messages": own}, system_prompt="given")
    assert isinstance(first, Prompt)
    assert isinstance(second, Prompt)
    assert first.messages == ({"role": "system", "content": "given"}, {"role": "user", "content": "x"})
    assert second.messages == tuple(own)


def test_what_is_done_is_left_out_and_nothing_else_moves(tmp_path: Path) -> None:
    records: list[Any] = [
        {"id": "a", "prompt": "1"},
        {"id": "a"},  # no prompt, and an id that comes again
        {"id": "a", "prompt": "2"},
        {"prompt": "same"},
        {"prompt": "same"},
        {"messages": [{"role": "user", "content": "same"}]},
        {"id": "b", "prompt": ""},
        {"id": "b", "prompt": "3"},
    ]
    first = [item for item in read(tmp_path, *records) if isinstance(item, Prompt)]
    assert len({prompt.sample_id for prompt in first}) == 6
    for prompt in first:
        done = {p.sample_id for p in first if p.position <= prompt.position}
        rest = [item for item in reader(tmp_path).iter(done.__contains__) if isinstance(item, Prompt)]
        assert rest == first[prompt.position + 1 :]


def test_a_conversation_comes_again_until_all_its_turns_are_done(tmp_path: Path) -> None:
    turns = [{"from": "human", "value": "1"}, {"from": "gpt", "value": "a"}, {"from": "human", "value": "2"}]
    (prompt,) = read(tmp_path, {"id": "c/t1", "conversations": turns}, turns="all")
    assert isinstance(prompt, Prompt)
    assert prompt.sample_id == "c/t1/t0"
    second = next_turn(prompt, {"role": "assistant", "content": "new"})
    assert second is not None
    assert second.sample_id == "c/t1/t1"
    again = reader(tmp_path, turns="all")
    assert list(again.iter({"c/t1/t0"}.__contains__)) == [prompt]
    assert list(again.iter({"c/t1/t0", "c/t1/t1"}.__contains__)) == []


def test_conversations_that_differ_later_have_different_ids_when_all_turns_are_made(tmp_path: Path) -> None:
    begin = [{"role": "user", "content": "1"}, {"role": "assistant", "content": "a"}]
    records = [{"messages": [*begin, {"role": "user", "content": later}]} for later in ("x", "y")]
    one, two = ids(read(tmp_path, *records, turns="all"))
    assert "#" not in one + two
    assert one != two


def test_large_records_and_wide_objects_are_read(tmp_path: Path) -> None:
    huge = "x" * 6_000_000
    wide = {f"key{i}": 2**60 + i for i in range(200)}
    items = read(tmp_path, {"prompt": huge}, {"prompt": [{"role": "user", "content": "w", "extra": wide}]})
    assert texts(items) == [huge, "w"]
    assert isinstance(items[1], Prompt)
    assert items[1].messages[0]["extra"] == wide


def test_gzip_is_read(tmp_path: Path) -> None:
    (tmp_path / "p.jsonl.gz").write_bytes(gzip.compress(b'{"prompt": "a"}\n{"prompt": "b"}'))
    assert texts(reader(tmp_path, "p.jsonl.gz")) == ["a", "b"]


def test_several_files_are_one_dataset(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text('{"id": 1, "prompt": "a"}\nbad\n')
    (tmp_path / "b.jsonl").write_text('{"id": 1, "prompt": "b"}\nbad\n')
    items = list(reader(tmp_path, "*.jsonl"))
    assert ids(items) == ["1", "1#2"]
    assert [Path(item.file).name for item in items if isinstance(item, BadLine)] == ["a.jsonl", "b.jsonl"]
    assert [line for line, _ in bad_lines(items)] == [2, 2]


def test_parquet_files_with_different_columns_are_one_dataset(tmp_path: Path) -> None:
    turns = [[{"role": "user", "content": "m", "name": None}, {"role": "assistant", "content": "a", "name": "bot"}]]
    numbers = pa.array([2**63, 5], pa.uint64())
    pq.write_table(pa.table({"prompt": ["x", None], "big": [1, 2], "id": numbers}), tmp_path / "a.parquet")
    pq.write_table(pa.table({"messages": turns, "uuid": ["u-1"]}), tmp_path / "b.parquet")
    pq.write_table(pa.table({"question": ["q"], "id": pa.array([Decimal(10**25)], pa.decimal128(30))}), tmp_path / "c.parquet")
    items = list(reader(tmp_path, "*.parquet"))
    assert ids(items) == [str(2**63), "u-1", str(10**25)]
    assert [item.messages for item in items if isinstance(item, Prompt)] == [
        ({"role": "user", "content": "x"},),
        ({"role": "user", "content": "m"},),
        ({"role": "user", "content": "q"},),
    ]
    assert [line for line, _ in bad_lines(items)] == [2]


def test_a_parquet_row_that_is_no_utf8_is_bad_and_its_neighbours_are_good(tmp_path: Path) -> None:
    raw = pa.array([b"a", b"\xff", b"c"], pa.binary())
    column = pa.StringArray.from_buffers(3, raw.buffers()[1], raw.buffers()[2])
    pq.write_table(pa.table({"prompt": column}), tmp_path / "p.parquet")
    items = list(reader(tmp_path, "p.parquet"))
    assert texts(items) == ["a", "c"]
    assert bad_lines(items) == [(2, "not valid UTF-8")]


def test_parquet_is_read_in_small_batches_with_the_same_numbers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pq.write_table(pa.table({"prompt": [f"p{i}" if i % 7 else "" for i in range(50)]}), tmp_path / "p.parquet")
    monkeypatch.setattr("backend.prompts.lines.BATCH_ROWS", 3)
    items = list(reader(tmp_path, "p.parquet"))
    assert [line for line, _ in bad_lines(items)] == [i + 1 for i in range(0, 50, 7)]
    assert len(ids(items)) == 42


def test_memory_grows_by_the_digests_only(tmp_path: Path) -> None:
    with (tmp_path / "p.jsonl").open("w") as file:
        for i in range(20_000):
            file.write(json.dumps({"prompt": f"{i} " + "word " * 200}) + "\n")  # 20 MB
    prompts = reader(tmp_path)
    tracemalloc.start()
    try:
        count = sum(1 for _ in prompts)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert count == 20_000
    assert peak < 150 * 20_000 + 1_000_000


def test_a_preview_shows_the_first_prompts_and_bad_lines_with_the_system_prompt(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text('{"prompt": "a"}\nbad\n{"prompt": "b"}\n{"prompt": "c"}\n')
    dataset = DatasetConfig(name="d", path="a.jsonl", system_prompt="s")
    shown = preview(dataset, tmp_path, 3)
    assert texts(shown) == ["a", "b"]
    assert all(item.messages[0]["content"] == "s" for item in shown if isinstance(item, Prompt))
    assert [line for line, _ in bad_lines(shown)] == [2]


def test_an_own_id_that_is_the_hash_of_another_prompt_is_numbered(tmp_path: Path) -> None:
    (hashed,) = ids(read(tmp_path, {"prompt": "a"}))
    alike = hashed[:-8].upper().replace("H", "h") + "12345678"
    records = [{"prompt": "a"}, {"prompt": "b", "id": hashed}, {"prompt": "c", "id": alike}, {"prompt": "a"}]
    assert ids(read(tmp_path, *records)) == [hashed, f"{hashed}#2", alike, f"{hashed}#3"]


def test_a_line_too_long_to_hold_is_bad_and_the_rest_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("backend.prompts.lines.MAX_LINE_BYTES", 1 << 20)
    monkeypatch.setattr("backend.prompts.lines.CHUNK_BYTES", 1 << 10)
    fits = b'{"prompt": "' + b"x" * ((1 << 20) - 15) + b'"}\n'
    assert len(fits) == 1 << 20
    items = read_bytes(tmp_path, b"\0" * (3 << 20) + b"\n" + fits + b'{"prompt": "last"}\n' + b"\0" * (2 << 20))
    assert bad_lines(items) == [(n, "longer than 1 MiB: one object a line is expected") for n in (1, 4)]
    assert [len(text) for text in texts(items)] == [(1 << 20) - 15, 4]
