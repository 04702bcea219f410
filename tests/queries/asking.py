"""Asks any question of a run within this process, long ones too."""

from __future__ import annotations

from typing import Any

from backend.report import side_tables
from backend.report.connection import query_text
from backend.report.database import rows_of, run_query
from backend.report.questions import BY_NAME
from backend.report.texts import open_with_texts
from backend.run_dir import RunDir


def ask(run: RunDir, name: str, *, other: RunDir | None = None, **parameters: Any) -> list[dict[str, Any]]:
    """The rows of a query, as the page gets them."""
    question = BY_NAME.get(name)
    if question is not None and not question.long:
        return run_query(run, name, **parameters)
    _, cursor = open_with_texts(run, memory_limit="500MB")
    if other is not None:
        by = {"by": parameters.pop("by")}
        for table, of in (("ours", run), ("theirs", other)):
            rows = open_with_texts(of, memory_limit="500MB")[1].sql(query_text("setup/compared"), params=by).to_arrow_table()
            cursor.register("rows_of_a_run", rows)
            cursor.execute(f"CREATE TABLE {table} AS FROM rows_of_a_run")
    side_tables.create(cursor, run, side_tables.named_in(query_text(name)))
    return rows_of(cursor, query_text(name), parameters)
