"""Questions about a run's finished samples, answered by DuckDB: the shards that the manifest names and the ledger's open rows.

Few columns of the first millions of samples are kept in memory (about 100 MB a million), and only what is new is read again;
what else is asked for is read from the files. What a question is stands in queries/NAME.sql; the tables it can ask are in
queries/setup/, small ones beside the samples in `side_tables.py`. Texts belong to `samples.py`, long questions to
`long_question.py`. Everything is read-only, and nothing waits for the job or keeps it waiting.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

from backend.report import side_tables
from backend.report.connection import MEMORY_LIMIT, connect, file_list, first_line, query_text
from backend.report.ledger_news import News, Shard, read_news
from backend.report.shard_check import Mark, find_fault, mark_of
from backend.rows import arrow_table, duckdb_column_types
from backend.run_dir import RunDir, RunDirError
from backend.runs import command_name

if TYPE_CHECKING:
    import duckdb

RUNS_KEPT: Final = 3  # in memory; the one that was asked least recently makes room
TEXTS: Final = ("messages", "reasoning", "answer", "raw_text", "tool_calls", "prompt_token_ids", "output_ids")
ROWS_KEPT: Final = 3_000_000  # of a run in memory; rows beyond are read from their files, three times slower


def run_query(run: RunDir, name: str, **parameters: Any) -> list[dict[str, Any]]:
    """The rows of queries/`name`.sql, with all that has finished up to now.

    Raises RunDirError where the run cannot be read.
    """
    with translated(run):
        database = _database(run)
        database.refresh()
        with database.cursor() as cursor:
            text = query_text(name)
            side_tables.create(cursor, run, side_tables.named_in(text))
            return rows_of(cursor, text, parameters)


def rows_of(cursor: duckdb.DuckDBPyConnection, text: str, parameters: Mapping[str, Any]) -> list[dict[str, Any]]:
    """What a query answers, column name → value in each row. Raises duckdb.Error."""
    cursor.execute(text, dict(parameters) or None)
    columns = [column[0] for column in cursor.description or ()]
    return [dict(zip(columns, values, strict=True)) for values in cursor.fetchall()]


def skipped_shards(run: RunDir) -> tuple[str, ...]:
    """Sentences about shards that the manifest names and that cannot be read: their samples are missing in every answer."""
    with translated(run):
        database = _database(run)
        database.refresh()
        return tuple(sentence for _, sentence in sorted(database.broken.items()))


class Database:
    """One run as DuckDB sees it. Any thread may ask; one at a time brings it up to date."""

    def __init__(self, run: RunDir, *, rows_kept: int = ROWS_KEPT, memory_limit: str = MEMORY_LIMIT) -> None:
        self.run = run
        self._rows_kept, self._memory_limit = rows_kept, memory_limit
        self._lock = threading.Lock()
        self._begin_anew()

    def cursor(self) -> duckdb.DuckDBPyConnection:
        """A cursor, for one thread; it sees what the last refresh left, or the next one."""
        return self._con.cursor()

    def shards(self) -> list[Shard]:
        """The sealed shards that can be read, in the manifest's order."""
        return sorted(shard for shard in self._seen if shard.path not in self.broken)

    def sealed_through(self) -> dict[str, int]:
        """Dataset → seq of the last row that a shard holds, as of the last refresh."""
        return dict(self._sealed_through)

    def refresh(self) -> None:
        """Reads what has come since the last time. Raises RunDirError, duckdb.Error."""
        with self._lock:
            news = read_news(self.run, self._seen_seq, self._superseded_mark)
            marks = {shard: mark_of(self.run.root / shard.path) for shard in news.shards}
            if news.newest_seq < self._seen_seq or any(marks.get(shard) != self._seen[shard] for shard in self.shards()):
                # shards were given up or changed, or another ledger took the place of this one
                self._begin_anew()
                news = read_news(self.run, 0, self._superseded_mark)
            fresh = {s: mark for s, mark in sorted(marks.items()) if s not in self._seen or self._seen[s] != mark}
            sealed = news.sealed_through != self._sealed_through
            if fresh or sealed or news.open_records or news.superseded_mark != self._superseded_mark:
                self._take(news, fresh)

    def _begin_anew(self) -> None:
        self._con = connect(self.run, memory_limit=self._memory_limit)
        self._con.execute(query_text("setup/outcome"))
        columns = ", ".join(f"{name} {kind}" for name, kind in duckdb_column_types().items())
        self._con.execute(f"CREATE TABLE no_rows ({columns})")
        self._con.execute(query_text("setup/tables").replace("$no_facts", facts_of("no_rows")))
        kept = self._con.execute("SELECT column_name FROM duckdb_columns() WHERE table_name = 'kept'").fetchall()
        self._kept_columns = ", ".join(name for (name,) in kept)
        self.broken: dict[str, str] = {}  # path of a shard → why it is skipped
        self._seen: dict[Shard, Mark | None] = {}  # shards that were looked at, as they were then
        self._kept: dict[Shard, int] = {}  # those whose rows are in memory → how many
        self._sealed_through: tuple[tuple[str, int], ...] = ()
        self._seen_seq = 0
        self._superseded_mark = (0, 0)
        self._create_views(self._con, [], [])

    def _take(self, news: News, fresh: Mapping[Shard, Mark | None]) -> None:
        import duckdb

        faults = {s.path: fault for s, mark in fresh.items() if (fault := find_fault(s, self.run.root / s.path, mark))}
        with self._con.cursor() as cursor:
            try:
                self._take_all(cursor, news, [s for s in fresh if s.path not in faults])
            except duckdb.Error:
                found = self._find_unreadable(cursor, [s for s in fresh if s.path not in faults])
                if not found:
                    raise
                faults |= found
                self._take_all(cursor, news, [s for s in fresh if s.path not in faults])
        mended = {shard.path for shard in fresh} - set(faults)
        still = {path: why for path, why in self.broken.items() if path not in mended}
        self.broken = still | {path: self._sentence(path, fault) for path, fault in faults.items()}
        self._seen |= fresh
        self._seen_seq, self._superseded_mark = news.newest_seq, news.superseded_mark
        self._sealed_through = news.sealed_through

    def _take_all(self, cursor: duckdb.DuckDBPyConnection, news: News, fresh: list[Shard]) -> None:
        """ONE transaction: a question sees a sample where it was or where it is now, never in both places."""
        kept = self._chosen_to_keep(fresh)
        cursor.begin()
        try:
            if kept:
                source = facts_of(self.rows_in(list(kept)))
                cursor.execute(f"INSERT INTO kept BY NAME SELECT {self._kept_columns} FROM {source}")
            for dataset, seq in sorted(set(news.sealed_through) - set(self._sealed_through)):
                # a new table: deleted rows of the old one would keep their memory
                left = "SELECT * FROM open WHERE NOT (dataset = $dataset AND seq <= $seq)"
                cursor.execute(f"CREATE OR REPLACE TABLE open AS {left}", {"dataset": dataset, "seq": seq})
            if news.open_records:
                table = arrow_table(record[1:] for record in news.open_records)
                cursor.register("open_records", table.append_column("seq", [[record[0] for record in news.open_records]]))
                cursor.execute(f"INSERT INTO open BY NAME SELECT * FROM {facts_of('open_records', '*')}")
                cursor.unregister("open_records")
            if news.superseded_mark != self._superseded_mark:
                cursor.execute("DELETE FROM superseded")
                if news.superseded:
                    cursor.executemany("INSERT INTO superseded VALUES ($1, $2, $3, $4)", news.superseded)
            if news.superseded_mark != (0, 0):
                cursor.execute(query_text("setup/without_superseded"))
            all_kept = self._kept | kept
            readable = sorted({*self.shards(), *fresh})
            self._create_views(cursor, readable, [shard for shard in readable if shard not in all_kept])
            cursor.commit()
        except BaseException:
            cursor.rollback()
            raise
        self._kept = all_kept

    def _chosen_to_keep(self, fresh: Sequence[Shard]) -> dict[Shard, int]:
        room, chosen = self._rows_kept - sum(self._kept.values()), {}
        for shard in fresh:
            if shard.rows <= room:
                chosen[shard] = shard.rows
                room -= shard.rows
        return chosen

    def _create_views(self, con: duckdb.DuckDBPyConnection, readable: list[Shard], others: list[Shard]) -> None:
        text = query_text("setup/views").replace("$kept_columns", self._kept_columns)
        text = text.replace("$facts_of_shards", facts_of(self.rows_in(readable)))
        con.execute(text.replace("$facts_of_others", facts_of(self.rows_in(others))))

    def rows_in(self, shards: list[Shard]) -> str:
        """The rows of shards as a table in SQL."""
        return f"read_parquet({file_list([self.run.root / s.path for s in shards])})" if shards else "no_rows"

    def _find_unreadable(self, cursor: duckdb.DuckDBPyConnection, shards: list[Shard]) -> dict[str, str]:
        import duckdb

        faults = {}
        for shard in shards:
            try:
                cursor.execute(f"SELECT count(COLUMNS(*)) FROM {facts_of(self.rows_in([shard]))}")
            except duckdb.Error as error:
                faults[shard.path] = f"cannot be read ({first_line(error)})"
        return faults

    def _sentence(self, path: str, fault: str) -> str:
        return (
            f"{path} {fault}: its samples are missing in what is shown here. Restore it from a copy, or remove it and have "
            f"them made again: python -m backend.job.give_up {command_name(self.run)}"
        )


_databases: OrderedDict[str, Database] = OrderedDict()
_databases_lock = threading.Lock()


def _database(run: RunDir) -> Database:
    key = str(run.root.absolute())
    with _databases_lock:
        database = _databases.pop(key, None) or Database(run)
        _databases[key] = database
        while len(_databases) > RUNS_KEPT:
            _databases.popitem(last=False)
        return database


@contextmanager
def translated(run: RunDir) -> Iterator[None]:
    """DuckDB's errors become RunDirError, in a sentence."""
    import duckdb

    try:
        yield
    except duckdb.Error as error:
        raise RunDirError(f"{run.name}: the finished samples could not be looked through: {first_line(error)}") from None


def facts_of(source: str, columns: str = "NULL::BIGINT AS seq, *", *, texts: bool = False) -> str:
    """The short columns of rows in `source`, a table in SQL, and those of TEXTS; `seq` is known of open rows only."""
    facts = query_text("setup/facts").replace("$texts", "".join(f", {name}" for name in TEXTS) if texts else "")
    return f"(WITH arrived AS (SELECT {columns} FROM {source}) {facts})"
