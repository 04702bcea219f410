"""Questions about a run's finished samples, answered by DuckDB: the shards that the manifest names and the ledger's open rows.

Few columns of every sample are kept in memory (about 60 MB a million), and only what is new is read again; texts are never
among them (`samples.py` reads those). What a question is stands in queries/NAME.sql; the tables it can ask are in
queries/setup/. Everything is read-only, and nothing waits for the job or keeps it waiting.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from backend.report.ledger_news import News, Shard, read_news
from backend.rows import arrow_table
from backend.run_dir import RunDir, RunDirError
from backend.runs import command_name

if TYPE_CHECKING:
    import duckdb

QUERIES: Final = Path(__file__).resolve().parents[2] / "queries"
RUNS_KEPT: Final = 3  # in memory; the one that was asked least recently makes room
MEMORY_LIMIT: Final = "1GB"
THREADS: Final = 2

_SHARDS: Final = "(SELECT NULL::BIGINT AS seq, * FROM read_parquet($paths))"


def run_query(run: RunDir, name: str, **parameters: Any) -> list[dict[str, Any]]:
    """The rows of queries/`name`.sql, with all that has finished up to now.

    Raises RunDirError where the run cannot be read.
    """
    with _translated(run):
        database = _database(run)
        database.refresh()
        with database.cursor() as cursor:
            cursor.execute(query_text(name), parameters or None)
            columns = [column[0] for column in cursor.description or ()]
            return [dict(zip(columns, values, strict=True)) for values in cursor.fetchall()]


def skipped_shards(run: RunDir) -> tuple[str, ...]:
    """Sentences about shards that the manifest names and that cannot be read: their samples are missing in every answer."""
    with _translated(run):
        database = _database(run)
        database.refresh()
        return tuple(broken.sentence for _, broken in sorted(database.broken.items()))


@cache
def query_text(name: str) -> str:
    """The text of queries/`name`.sql."""
    return (QUERIES / f"{name}.sql").read_text()


def first_line(error: Exception) -> str:
    """What DuckDB says, without the excerpt of the statement that follows."""
    return str(error).partition("\n")[0]


def connect(run: RunDir) -> duckdb.DuckDBPyConnection:
    """DuckDB in memory: few threads, no extension is loaded, and no file can be opened but those of the run."""
    import duckdb

    config: dict[str, str | bool | int | float | list[str]] = {
        "autoinstall_known_extensions": "false",
        "autoload_known_extensions": "false",
        "memory_limit": MEMORY_LIMIT,
        "preserve_insertion_order": "false",  # keeping it costs a third of a first read
        "threads": str(THREADS),
        "temp_directory": "",
    }
    con = duckdb.connect(":memory:", config=config)
    # the folder of shards may be a link to another disk
    places = sorted({str(run.root.absolute()), str(run.root.resolve()), str(run.shards.resolve())})
    con.execute(f"SET allowed_directories = [{', '.join(_quoted(f'{place}/') for place in places)}]")
    con.execute("SET enable_external_access = false")
    con.execute("SET lock_configuration = true")
    return con


@dataclass(frozen=True, slots=True)
class _Broken:
    sentence: str
    seen: tuple[int, int] | None  # size and time of change: a file that was mended since is tried again


class _Database:
    """One run in memory. Any thread may ask; one at a time brings it up to date."""

    def __init__(self, run: RunDir) -> None:
        self.run = run
        self._lock = threading.Lock()
        self._begin_anew()

    def cursor(self) -> duckdb.DuckDBPyConnection:
        """A cursor, for one thread; it sees what the last refresh left, or the next one."""
        return self._con.cursor()

    def refresh(self) -> None:
        """Reads what has come since the last time. Raises RunDirError, duckdb.Error."""
        with self._lock:
            news = read_news(self.run, self._seen_seq, self._superseded_mark)
            if not self._loaded <= news.shards or news.newest_seq < self._seen_seq:  # shards were given up, or another ledger
                self._begin_anew()
                news = read_news(self.run, 0, self._superseded_mark)
            fresh = sorted(shard for shard in news.shards - self._loaded if self._is_worth_a_try(shard))
            sealed = news.sealed_through != self._sealed_through
            if fresh or sealed or news.open_records or news.superseded_mark != self._superseded_mark:
                self._take(news, fresh)

    def _begin_anew(self) -> None:
        self._con = connect(self.run)
        for name in ("outcome", "tables"):
            self._con.execute(query_text(f"setup/{name}"))
        self.broken: dict[str, _Broken] = {}  # path of a shard → why it is skipped
        self._loaded: frozenset[Shard] = frozenset()
        self._sealed_through: tuple[tuple[str, int], ...] = ()
        self._seen_seq = 0
        self._superseded_mark = (0, 0)

    def _take(self, news: News, fresh: list[Shard]) -> None:
        import duckdb

        broken: dict[str, _Broken] = {}
        with self._con.cursor() as cursor:
            try:
                self._take_all(cursor, news, fresh)
            except duckdb.Error:
                broken = self._find_broken(cursor, fresh)
                if not broken:
                    raise
                fresh = [shard for shard in fresh if shard.path not in broken]
                self._take_all(cursor, news, fresh)
        readable = {shard.path for shard in fresh}
        self.broken = {path: why for path, why in (self.broken | broken).items() if path not in readable}
        self._loaded |= frozenset(fresh)
        self._seen_seq, self._superseded_mark = news.newest_seq, news.superseded_mark
        self._sealed_through = news.sealed_through

    def _take_all(self, cursor: duckdb.DuckDBPyConnection, news: News, fresh: list[Shard]) -> None:
        """ONE transaction: a question sees a sample where it was or where it is now, never in both places."""
        cursor.begin()
        try:
            if fresh:
                paths = [str(self.run.root / shard.path) for shard in fresh]
                cursor.execute(f"INSERT INTO sealed BY NAME SELECT * EXCLUDE (seq) FROM {_facts(_SHARDS)}", {"paths": paths})
            for dataset, seq in sorted(set(news.sealed_through) - set(self._sealed_through)):
                # a new table: deleted rows of the old one would keep their memory
                kept = "SELECT * FROM open WHERE NOT (dataset = $dataset AND seq <= $seq)"
                cursor.execute(f"CREATE OR REPLACE TABLE open AS {kept}", {"dataset": dataset, "seq": seq})
            if news.open_records:
                table = arrow_table(record[1:] for record in news.open_records)
                cursor.register("open_records", table.append_column("seq", [[record[0] for record in news.open_records]]))
                cursor.execute(f"INSERT INTO open BY NAME SELECT * FROM {_facts('open_records')}")
                cursor.unregister("open_records")
            if news.superseded_mark != self._superseded_mark:
                cursor.execute("DELETE FROM superseded")
                if news.superseded:
                    cursor.executemany("INSERT INTO superseded VALUES ($1, $2, $3, $4)", news.superseded)
            cursor.commit()
        except BaseException:
            cursor.rollback()
            raise

    def _find_broken(self, cursor: duckdb.DuckDBPyConnection, shards: list[Shard]) -> dict[str, _Broken]:
        import duckdb

        broken = {}
        for shard in shards:
            path = self.run.root / shard.path
            mark = _mark_of(path)
            try:
                cursor.execute(f"SELECT count(COLUMNS(*)) FROM {_facts(_SHARDS)}", {"paths": [str(path)]})
            except duckdb.Error as error:
                why = "is missing" if mark is None else f"cannot be read ({first_line(error)})"
                sentence = (
                    f"{shard.path} {why}: its samples are missing in what is shown here. Restore it from a copy, or have them "
                    f"made again: python -m backend.job.give_up {command_name(self.run)}"
                )
                broken[shard.path] = _Broken(sentence, mark)
        return broken

    def _is_worth_a_try(self, shard: Shard) -> bool:
        broken = self.broken.get(shard.path)
        return broken is None or broken.seen != _mark_of(self.run.root / shard.path)


_databases: OrderedDict[str, _Database] = OrderedDict()
_databases_lock = threading.Lock()


def _database(run: RunDir) -> _Database:
    key = str(run.root.absolute())
    with _databases_lock:
        database = _databases.pop(key, None) or _Database(run)
        _databases[key] = database
        while len(_databases) > RUNS_KEPT:
            _databases.popitem(last=False)
        return database


@contextmanager
def _translated(run: RunDir) -> Iterator[None]:
    import duckdb

    try:
        yield
    except duckdb.Error as error:
        raise RunDirError(f"{run.name}: the finished samples could not be looked through: {first_line(error)}") from None


def _facts(source: str) -> str:
    return f"(WITH arrived AS (SELECT * FROM {source}) {query_text('setup/facts')})"


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def _mark_of(path: Path) -> tuple[int, int] | None:
    try:
        seen = path.stat()
    except OSError:
        return None
    return seen.st_size, seen.st_mtime_ns
