"""The records of one prompt file, one after the other: JSONL (plain or gzip) and Parquet, in constant memory.

A record that cannot be read is a reason in words in its place; what a record means is told by `forms.py`.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import IO, Any, Final, NoReturn

from backend.prompts.files import CHUNK_BYTES, MAX_LINE_BYTES, is_parquet, open_lines, open_parquet

BATCH_BYTES: Final = 16 << 20
BATCH_ROWS: Final = 2048

Record = dict[str, Any]


def read_records(path: Path, columns: tuple[str, ...]) -> Iterator[tuple[int, Record | str]]:
    """Yields (line or row number from 1, record or reason). Of Parquet only `columns` are read.

    Raises OSError, and pyarrow's and gzip's exceptions for a damaged file.
    """
    return _parquet_rows(path, columns) if is_parquet(path) else _json_lines(path)


def _json_lines(path: Path) -> Iterator[tuple[int, Record | str]]:
    # a binary file is cut at b"\n" only; text cut by str.splitlines() would break at U+2028 or U+0085 within a prompt
    with open_lines(path) as lines:
        for number, line in enumerate(iter(partial(lines.readline, MAX_LINE_BYTES + 1), b""), 1):
            if len(line) > MAX_LINE_BYTES:
                _pass_over_line(lines, line)
                yield number, f"longer than {MAX_LINE_BYTES >> 20} MiB: one object a line is expected"
                continue
            decoded = decode_line(line, is_first=number == 1)
            if decoded is not None:
                yield number, decoded


def decode_line(line: bytes, *, is_first: bool = False) -> Record | str | None:
    """The object of a line of JSONL; a reason in words where it holds none, None where it is blank."""
    raw = line.strip()
    if is_first:
        raw = raw.removeprefix(b"\xef\xbb\xbf").strip()
    if not raw:
        return None
    try:
        text = raw.decode()
        record, end = _decode(text)
    except UnicodeDecodeError as error:
        return f"not valid UTF-8 (byte {error.start + 1} of the line)"
    except json.JSONDecodeError as error:
        return f"not valid JSON: {error.msg} at column {error.pos + 1}{_torn(line)}"
    except ValueError as error:
        return f"not valid JSON: {error}"
    except RecursionError:
        return "not usable JSON: nested too deeply"
    if end != len(text):
        return f"not valid JSON: something follows the object at column {end + 1}"
    if not isinstance(record, dict):
        return f"must be an object, found a {type(record).__name__}"
    return record


def _pass_over_line(lines: IO[bytes], part: bytes) -> None:
    while part and not part.endswith(b"\n"):
        part = lines.readline(CHUNK_BYTES)


def _torn(line: bytes) -> str:
    return "" if line.endswith(b"\n") else " (the file ends within this line)"


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")


_decode = json.JSONDecoder(parse_constant=_refuse_constant).raw_decode


def _parquet_rows(path: Path, columns: tuple[str, ...]) -> Iterator[tuple[int, Record | str]]:
    with open_parquet(path) as parquet:
        present = [name for name in columns if name in parquet.schema_arrow.names]
        number = 0
        if not present:
            for number in range(1, parquet.metadata.num_rows + 1):
                yield number, {}
            return
        for batch in parquet.iter_batches(batch_size=_batch_rows(parquet.metadata), columns=present):
            try:
                rows: list[Record | str] = batch.to_pylist()
            except UnicodeDecodeError:
                rows = [_single_row(batch.slice(i, 1)) for i in range(batch.num_rows)]
            for row in rows:
                number += 1
                yield number, row if isinstance(row, str) else _without_nulls(row)


def _batch_rows(metadata: Any) -> int:
    total = sum(metadata.row_group(i).total_byte_size for i in range(metadata.num_row_groups))
    rows: int = BATCH_BYTES * metadata.num_rows // max(total, 1)
    return max(1, min(BATCH_ROWS, rows))


def _single_row(batch: Any) -> Record | str:
    try:
        row: Record = batch.to_pylist()[0]
    except UnicodeDecodeError:
        return "not valid UTF-8"
    return row


def _without_nulls(value: Any) -> Any:
    """Arrow gives every struct the fields of all others, as nulls: those were never in the source."""
    if isinstance(value, dict):
        return {key: _without_nulls(item) for key, item in value.items() if item is not None}
    if isinstance(value, list):
        return [_without_nulls(item) for item in value]
    return value
