"""An answer as a table and as files that can be read again."""

from __future__ import annotations

import csv
import io

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from backend.report.answers import ROWS_SHOWN, AnswerTable, of_rows, to_csv, to_parquet

ROWS = [
    {"name": "a,\"b\"\nc", "n": 1, "share": None, "ids": [1, 2]},
    {"name": "=cmd()", "n": None, "share": 0.5, "ids": None},
]  # fmt: skip


def test_a_csv_file_holds_every_row_and_no_formula() -> None:
    head, first, second = csv.reader(io.StringIO(to_csv(of_rows(ROWS)).decode()))
    assert head == ["name", "n", "share", "ids"]
    assert first == ['a,"b"\nc', "1", "", "[1, 2]"]
    assert second == ["'=cmd()", "", "0.5", ""]


def test_a_parquet_file_holds_the_rows_as_they_are() -> None:
    assert pq.read_table(io.BytesIO(to_parquet(of_rows(ROWS)))).to_pylist() == ROWS


def test_a_page_shows_the_first_rows_and_seconds_as_times() -> None:
    table = pa.table({"finished_at": [1.5, None] * ROWS_SHOWN, "n": range(2 * ROWS_SHOWN)})
    shown = AnswerTable(table).shown()
    assert shown.num_rows == ROWS_SHOWN
    assert shown.column("finished_at").to_pylist()[0].isoformat() == "1970-01-01T00:00:01.500000+00:00"
    assert shown.column("finished_at").to_pylist()[1] is None
    assert table.column("finished_at").to_pylist()[0] == 1.5


def test_no_row_is_an_answer_too() -> None:
    assert of_rows([]).table.num_rows == 0


def asked(sql: str) -> AnswerTable:
    return AnswerTable(duckdb.connect().sql(sql).to_arrow_table())


def test_two_columns_of_one_name_keep_their_cells() -> None:
    assert to_csv(asked("SELECT 1 AS a, 2 AS a")).decode().split() == ["a,a", "1,2"]


def test_what_is_called_a_time_and_is_none_is_missing() -> None:
    shown = asked("SELECT unnest(['nan'::DOUBLE, 'inf'::DOUBLE, 1e300, 1.0]) AS x_at").shown()
    assert [at is None for at in shown.column("x_at").to_pylist()] == [True, True, True, False]


ODD = [
    "'infinity'::TIMESTAMP",
    "DATE '5877642-06-25 (BC)'",
    "TIMESTAMPTZ '290000-01-01 00:00:00+00'",
    "[TIMESTAMP '290000-01-01']",
    "INTERVAL 1 DAY",
    "union_value(k := 1)",
    "'x'::BLOB",
    "MAP {'a': 1}",
    "1::UHUGEINT",
]


@pytest.mark.parametrize("value", ODD)
def test_whatever_a_cell_holds_both_files_can_be_made(value: str) -> None:
    answer = asked(f"SELECT {value} AS x UNION ALL SELECT NULL")
    assert len(list(csv.reader(io.StringIO(to_csv(answer).decode())))) == 3
    assert pq.read_table(io.BytesIO(to_parquet(answer))).num_rows == 2
