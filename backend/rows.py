"""How a row is written: the columns of `open_rows`, the Arrow schema of shards, and the way between both.

Text is kept exactly. What UTF-8 cannot hold (lone surrogates) stands as U+FFFD in the text columns, where DuckDB and Parquet
can read it, and exactly in `exact_json`, from which `row_from_record` restores it. Times are kept to the microsecond.
"""

from __future__ import annotations

import hashlib
import json
import re
from array import array
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields
from typing import TYPE_CHECKING, Any, Final

from backend.records import Facts, Row

if TYPE_CHECKING:
    import pyarrow as pa

TEXT_COLUMNS: Final = (
    "dataset", "sample_id", "source", "model", "messages", "raw_text", "reasoning", "answer", "tool_calls", "finish_reason",
    "server_epoch", "error",
)  # fmt: skip
ID_LIST_COLUMNS: Final = ("prompt_token_ids", "output_ids")
BOOL_COLUMNS: Final = ("reasoning_closed", "tokens_estimated")
FLOAT_COLUMNS: Final = ("repeat_share", "started_at", "first_token_at", "finished_at", "cost_usd")
INT_COLUMNS: Final = (
    "position", "turn", "attempt", "prompt_tokens", "completion_tokens", "reasoning_tokens", "cached_tokens",
    "answer_tokens", "repeat_period", "simhash",
)  # fmt: skip
TIME_COLUMNS: Final = ("started_at", "first_token_at", "finished_at")

FACT_COLUMNS: Final = tuple(f.name for f in fields(Facts))
# Long columns stand last: SQLite reads a record from its front, so that counting open rows does not walk through the texts.
LONG_COLUMNS: Final = (
    "error", "tool_calls", "prompt_token_ids", "output_ids", "messages", "reasoning", "answer", "raw_text", "exact_json",
)  # fmt: skip
_FIELDS = tuple(name for f in fields(Row) for name in (FACT_COLUMNS if f.name == "facts" else (f.name,)))
COLUMNS: Final = (*(name for name in _FIELDS if name not in LONG_COLUMNS), *LONG_COLUMNS)
_LONG_INDICES: Final = tuple(COLUMNS.index(name) for name in LONG_COLUMNS)

_SURROGATE = re.compile("[\ud800-\udfff]")


def sqlite_column_types() -> dict[str, str]:
    """Column name → SQLite type, in the order of COLUMNS. Token ids are packed little-endian int32 in a BLOB."""
    types = dict.fromkeys(TEXT_COLUMNS, "TEXT") | dict.fromkeys(ID_LIST_COLUMNS, "BLOB") | {"exact_json": "TEXT"}
    types |= dict.fromkeys((*BOOL_COLUMNS, *INT_COLUMNS), "INTEGER") | dict.fromkeys(FLOAT_COLUMNS, "REAL")
    return {name: types[name] for name in COLUMNS}


def duckdb_column_types() -> dict[str, str]:
    """Column name → the type that DuckDB gives a shard's column, in the order of COLUMNS."""
    types = dict.fromkeys((*TEXT_COLUMNS, "exact_json"), "VARCHAR") | dict.fromkeys(ID_LIST_COLUMNS, "INTEGER[]")
    types |= dict.fromkeys(BOOL_COLUMNS, "BOOLEAN") | dict.fromkeys(INT_COLUMNS, "BIGINT")
    types |= dict.fromkeys(FLOAT_COLUMNS, "DOUBLE") | dict.fromkeys(TIME_COLUMNS, "TIMESTAMP WITH TIME ZONE")
    return {name: types[name] for name in COLUMNS}


def record_from_row(row: Row) -> tuple[Any, ...]:
    """A row as values for SQLite, in the order of COLUMNS. Raises OverflowError where a token id does not fit 32 bits."""
    values: dict[str, Any] = {f.name: getattr(row, f.name) for f in fields(row) if f.name != "facts"}
    values |= {name: getattr(row.facts, name) for name in FACT_COLUMNS}
    inexact: dict[str, str] = {}
    for name in TEXT_COLUMNS:
        text = values[name]
        if text is not None and not is_utf8(text):
            inexact[name] = text
            values[name] = stored_sample_id(text) if name == "sample_id" else _SURROGATE.sub("\ufffd", text)
    for name in ID_LIST_COLUMNS:
        if values[name] is not None:
            values[name] = array("i", values[name]).tobytes()
    for name in TIME_COLUMNS:
        if values[name] is not None:
            values[name] = round(values[name], 6)
    values["exact_json"] = json.dumps(inexact) if inexact else None
    return tuple(values[name] for name in COLUMNS)


def record_size_bytes(record: Sequence[Any]) -> int:
    """About how much a record holds: characters of text and bytes of ids."""
    return sum(len(record[index]) for index in _LONG_INDICES if record[index] is not None)


def stored_sample_id(sample_id: str) -> str:
    """The id as it stands in its column: itself, or, where UTF-8 cannot hold it, a text of its own that keeps it unique."""
    if is_utf8(sample_id):
        return sample_id
    digest = hashlib.blake2b(sample_id.encode("utf-8", "surrogatepass"), digest_size=8).hexdigest()
    return _SURROGATE.sub("\ufffd", sample_id) + "~" + digest


def row_from_record(record: Mapping[str, Any]) -> Row:
    """The exact row again, from a record of SQLite or of a shard (token ids as bytes or as a list)."""
    values = {name: record[name] for name in COLUMNS if name != "exact_json"}
    if record["exact_json"]:
        values |= json.loads(record["exact_json"])
    for name in ID_LIST_COLUMNS:
        values[name] = _unpack_ids(values[name])
    for name in BOOL_COLUMNS:
        values[name] = None if values[name] is None else bool(values[name])
    for name in TIME_COLUMNS:
        values[name] = _epoch_seconds(values[name])
    facts = Facts(**{name: values.pop(name) for name in FACT_COLUMNS})
    return Row(facts=facts, **values)


def arrow_schema() -> pa.Schema:
    """The schema of every shard; times are timestamps in microseconds, UTC."""
    import pyarrow as pa

    types: dict[str, Any] = dict.fromkeys((*TEXT_COLUMNS, "exact_json"), pa.string())
    types |= dict.fromkeys(ID_LIST_COLUMNS, pa.list_(pa.int32())) | dict.fromkeys(BOOL_COLUMNS, pa.bool_())
    types |= dict.fromkeys(FLOAT_COLUMNS, pa.float64()) | dict.fromkeys(INT_COLUMNS, pa.int64())
    types |= dict.fromkeys(TIME_COLUMNS, pa.timestamp("us", tz="UTC"))
    return pa.schema([pa.field(name, types[name]) for name in COLUMNS])


def arrow_table(records: Iterable[Sequence[Any]]) -> pa.Table:
    """Records of `open_rows` (values in the order of COLUMNS, as `SELECT *` gives them) as a table of the shards' schema."""
    import pyarrow as pa

    columns: list[Sequence[Any]] = list(zip(*records, strict=True)) or [()] * len(COLUMNS)
    schema = arrow_schema()
    arrays = [_arrow_column(name, values, schema.field(name).type) for name, values in zip(COLUMNS, columns, strict=True)]
    return pa.table(arrays, schema=schema)


def _arrow_column(name: str, values: Sequence[Any], kind: pa.DataType) -> Any:
    import pyarrow as pa

    if name in ID_LIST_COLUMNS:
        return _arrow_id_lists(values)
    if name in BOOL_COLUMNS:
        values = [None if value is None else bool(value) for value in values]
    elif name in TIME_COLUMNS:
        values = [None if value is None else round(value * 1e6) for value in values]
    return pa.array(values, type=kind)


def _arrow_id_lists(values: Sequence[bytes | None]) -> Any:
    # Millions of ids a shard: their bytes are joined as they are, instead of making a Python integer of each.
    import pyarrow as pa

    offsets = [0]
    for value in values:
        offsets.append(offsets[-1] + (len(value) // 4 if value else 0))
    missing = pa.array([value is None for value in values], type=pa.bool_())
    packed = b"".join(value for value in values if value)
    ids = pa.Array.from_buffers(pa.int32(), len(packed) // 4, [None, pa.py_buffer(packed)])
    return pa.ListArray.from_arrays(pa.array(offsets, type=pa.int32()), ids, mask=missing)


def is_utf8(text: str) -> bool:
    """False with a lone surrogate, which no database takes."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _unpack_ids(value: Any) -> tuple[int, ...] | None:
    if value is None:
        return None
    return tuple(array("i", value)) if isinstance(value, bytes) else tuple(value)


def _epoch_seconds(value: Any) -> Any:
    return value.timestamp() if hasattr(value, "timestamp") else value
