"""What a question was answered, as a table to look at and as a file to take away."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from backend.report.formatting import csv_cell
from backend.report.long_question import Result

ROWS_SHOWN: Final = 1_000  # on a page; a file has all
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
                values = [None if at is None else round(at * 1e6) for at in table.column(i).to_pylist()]
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
    for row in answer.table.to_pylist():
        writer.writerow([_cell(value) for value in row.values()])
    return text.getvalue().encode("utf-8", "replace")


def to_parquet(answer: AnswerTable) -> bytes:
    """All rows as Parquet, with the types that DuckDB gave them."""
    import pyarrow.parquet as pq

    buffer = io.BytesIO()
    pq.write_table(answer.table, buffer, compression="zstd")
    return buffer.getvalue()


def _cell(value: Any) -> Any:
    if isinstance(value, str):
        return csv_cell(value)
    if isinstance(value, list | dict):
        return csv_cell(json.dumps(value, default=str))
    return value
