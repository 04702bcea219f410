"""The table `texts` of a run's database: every column, read from the shards' files when asked, and of open rows from a copy.

Only the process that answers a long question makes it: the texts of open rows may take a gigabyte.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from backend.heartbeat import has_table, reading
from backend.report.connection import query_text
from backend.report.database import Database, facts_of
from backend.rows import COLUMNS, arrow_table
from backend.run_dir import RunDir

if TYPE_CHECKING:
    import duckdb

CHUNK_ROWS: Final = 500
TRIES: Final = 5  # a shard may be sealed while open rows are read; the next one comes seconds later at the soonest


def open_with_texts(run: RunDir, *, memory_limit: str) -> tuple[Database, duckdb.DuckDBPyConnection]:
    """A run's database and a cursor that knows `texts` as well, both of one moment. Raises RunDirError, duckdb.Error."""
    database = Database(run, rows_kept=0, memory_limit=memory_limit)
    cursor = database.cursor()
    for _ in range(TRIES):
        database.refresh()
        shards = database.shards()
        cursor.execute(f"CREATE OR REPLACE TABLE open_texts AS FROM {facts_of('no_rows', texts=True)}")
        _copy_open(run, cursor, database.sealed_through())
        database.refresh()
        if database.shards() == shards:
            break
    text = query_text("setup/texts").replace("$texts_of_shards", facts_of(database.rows_in(shards), texts=True))
    cursor.execute(text)
    return database, cursor


def _copy_open(run: RunDir, cursor: duckdb.DuckDBPyConnection, sealed_through: dict[str, int]) -> None:
    with reading(run.ledger) as con:
        if con is None or not has_table(con, "stored_rows"):
            return
        con.row_factory = None
        rows = con.execute(f"SELECT seq, {', '.join(COLUMNS)} FROM stored_rows ORDER BY seq")
        dataset_at = 1 + COLUMNS.index("dataset")
        while chunk := rows.fetchmany(CHUNK_ROWS):
            records: list[tuple[Any, ...]] = [r for r in chunk if r[0] > sealed_through.get(r[dataset_at], 0)]
            if records:
                table = arrow_table(record[1:] for record in records)
                cursor.register("open_records", table.append_column("seq", [[record[0] for record in records]]))
                cursor.execute(f"INSERT INTO open_texts BY NAME FROM {facts_of('open_records', '*', texts=True)}")
                cursor.unregister("open_records")
