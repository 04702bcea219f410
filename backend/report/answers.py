"""What a question was answered, as a table to look at and as a file to take away."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from backend.report.formatting import csv_cell
from backend.report.long_question import Result

ROWS_SHOWN: Final = 1_000  # on a page; a file has all
MOST_S: Final = 200_000_000_000.0  # before 1970 and after: calendars end in the year 9999
BEYOND: Final = "holds a moment beyond the calendar"
TIME_SUFFIX: Final = "_at"  # columns of epoch seconds


@dataclass(frozen=True, slots=True)
class AnswerTable:
    """A pyarrow table, and whether rows are missing at its end."""

    table: Any
    cut: bool = False

    def shown(self) -> Any:
        """The first rows, epoch seconds as times in UTC."""
        import pyarrow as pa

        table = self.table.slice(0, ROWS_SHOWN)
        for i, field in enumerate(table.schema):
            if field.name.endswith(TIME_SUFFIX) and pa.types.is_floating(field.type):
                values = [_microseconds(at) for at in table.column(i).to_pylist()]
                table = table.set_column(i, field.name, pa.array(values, pa.timestamp("us", tz="UTC")))
        return table


def of_rows(rows: Sequence[Mapping[str, Any]]) -> AnswerTable:
    """The rows of a query that was answered at once."""
    import pyarrow as pa

    return AnswerTable(pa.Table.from_pylist([dict(row) for row in rows]))


def of_result(result: Result) -> AnswerTable:
    """The result of a long question."""
    return AnswerTable(result.table, result.cut)


def to_csv(answer: AnswerTable) -> bytes:
    """All rows as CSV in UTF-8; lists and structures as JSON, and no cell that a spreadsheet would run."""
    text = io.StringIO()
    writer = csv.writer(text)
    writer.writerow([csv_cell(name) for name in answer.table.column_names])
    # by column: two of them may have the same name
    for row in zip(*map(_values, answer.table.columns), strict=True):
        writer.writerow([_cell(value) for value in row])
    return text.getvalue().encode("utf-8", "replace")


def to_parquet(answer: AnswerTable) -> bytes:
    """All rows as Parquet, with the types that DuckDB gave them; what Parquet has no type for (intervals, unions) as text."""
    import pyarrow as pa

    try:
        return _parquet(answer.table)
    except pa.ArrowNotImplementedError:
        table = answer.table
        for i, field in enumerate(table.schema):
            try:
                _parquet(table.slice(0, 0).select([i]))
            except pa.ArrowNotImplementedError:
                words = [None if value is None else str(value) for value in _values(table.column(i))]
                table = table.set_column(i, field.name, pa.array(words, pa.string()))
        return _parquet(table)


def _parquet(table: Any) -> bytes:
    import pyarrow.parquet as pq

    buffer = io.BytesIO()
    pq.write_table(table, buffer, compression="zstd")
    return buffer.getvalue()


def _microseconds(at_s: float | None) -> int | None:
    """None also for what is no moment that a calendar has, whatever the column is called."""
    return None if at_s is None or not abs(at_s) <= MOST_S else round(at_s * 1e6)


def _values(column: Any) -> Iterable[Any]:
    """The values of a column as Python has them; as text where it has no such moment."""
    import pyarrow as pa

    try:
        return list(column.to_pylist())
    except (OverflowError, ValueError):
        if pa.types.is_nested(column.type):
            return [BEYOND] * len(column)
        return list(column.cast(pa.string()).to_pylist())


def _cell(value: Any) -> Any:
    if isinstance(value, str):
        return csv_cell(value)
    if isinstance(value, list | dict):
        return csv_cell(json.dumps(value, default=str))
    return value
