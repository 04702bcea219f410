"""How a row is written and read again."""

from __future__ import annotations

import sqlite3
from dataclasses import replace
from pathlib import Path
from typing import Any

import duckdb
import pyarrow.parquet as pq
import pytest

from backend.records import Row
from backend.rows import (
    COLUMNS,
    arrow_schema,
    arrow_table,
    duckdb_column_types,
    record_from_row,
    row_from_record,
    sqlite_column_types,
    stored_sample_id,
)
from tests.sample_rows import BASE_AT, STRANGE_ROWS, make_row


def through_sqlite(row: Row) -> sqlite3.Row:
    con = sqlite3.connect(":memory:")
    con.row_factory = sqlite3.Row
    columns = ", ".join(f"{name} {kind}" for name, kind in sqlite_column_types().items())
    con.execute(f"CREATE TABLE t ({columns})")
    con.execute(f"INSERT INTO t VALUES ({', '.join('?' * len(COLUMNS))})", record_from_row(row))
    record: sqlite3.Row = con.execute("SELECT * FROM t").fetchone()
    con.close()
    return record


@pytest.mark.parametrize("row", STRANGE_ROWS.values(), ids=STRANGE_ROWS.keys())
def test_a_row_comes_back_exactly_from_sqlite_and_from_parquet(row: Row, tmp_path: Path) -> None:
    record = through_sqlite(row)
    assert row_from_record(record) == row
    pq.write_table(arrow_table([record]), tmp_path / "x.parquet")
    [stored] = pq.read_table(tmp_path / "x.parquet").to_pylist()
    assert row_from_record(stored) == row


def test_duckdb_reads_a_shard_with_the_types_that_are_told(tmp_path: Path) -> None:
    pq.write_table(arrow_table(()), tmp_path / "x.parquet")
    described = duckdb.sql(f"DESCRIBE FROM '{tmp_path / 'x.parquet'}'").fetchall()
    assert {name: kind for name, kind, *_ in described} == duckdb_column_types()


def test_times_are_kept_to_the_microsecond() -> None:
    row = row_from_record(through_sqlite(make_row(started_at=1_700_000_000.1234567)))
    assert row.started_at == 1_700_000_000.123457


def test_ids_that_differ_only_in_lone_surrogates_stay_two_ids() -> None:
    first, second = stored_sample_id("a\ud835"), stored_sample_id("a\ud836")
    assert first != second
    assert first.encode()
    assert stored_sample_id("plain é") == "plain é"


def test_no_rows_make_an_empty_table() -> None:
    table = arrow_table([])
    assert table.num_rows == 0
    assert table.schema == arrow_schema()


def test_ids_of_many_rows_are_not_mixed_up() -> None:
    rows = [make_row(n, output_ids=None if n % 3 == 0 else tuple(range(n))) for n in range(50)]
    stored = arrow_table([record_from_row(row) for row in rows]).to_pylist()
    assert [row_from_record(record) for record in stored] == rows


def test_a_token_id_beyond_32_bits_is_refused() -> None:
    with pytest.raises(OverflowError):
        record_from_row(make_row(output_ids=(2**31,)))


def test_duckdb_reads_times_as_timestamptz_and_ids_as_lists(tmp_path: Path) -> None:
    path = tmp_path / "x.parquet"
    pq.write_table(arrow_table([record_from_row(replace(STRANGE_ROWS["lone surrogates"], output_ids=(3, 4)))]), path)
    query = (
        "SELECT typeof(finished_at), epoch_us(finished_at), typeof(output_ids), list_sum(output_ids), typeof(simhash), raw_text"
        " FROM read_parquet(?)"
    )
    with duckdb.connect() as con:
        found: Any = con.execute(query, [str(path)]).fetchone()
    assert found == (
        "TIMESTAMP WITH TIME ZONE", round((BASE_AT + 1) * 1e6), "INTEGER[]", 7, "BIGINT", "x\ufffdy"
    )  # fmt: skip
