"""A DuckDB connection that can read a run's shards and nothing else, and the texts of queries/."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Final

from backend.run_dir import RunDir

if TYPE_CHECKING:
    import duckdb

QUERIES: Final = Path(__file__).resolve().parents[2] / "queries"
MEMORY_LIMIT: Final = "1GB"
THREADS: Final = 2


@cache
def query_text(name: str) -> str:
    """The text of queries/`name`.sql."""
    return (QUERIES / f"{name}.sql").read_text()


def connect(*runs: RunDir, memory_limit: str = MEMORY_LIMIT) -> duckdb.DuckDBPyConnection:
    """DuckDB in memory: few threads, no extension is loaded, and no file can be opened but those in the runs' `shards/`."""
    import duckdb

    config: dict[str, str | bool | int | float | list[str]] = {
        "autoinstall_known_extensions": "false",
        "autoload_known_extensions": "false",
        "memory_limit": memory_limit,
        "preserve_insertion_order": "false",  # keeping it costs a third of a first read
        "python_enable_replacements": "false",  # a name in a query is a table of ours, never a variable of this program
        "threads": str(THREADS),
        "temp_directory": "",
    }
    con = duckdb.connect(":memory:", config=config)
    con.execute("SET parquet_metadata_cache = true")  # a file that changed is noticed by its time
    # the folder of shards may be a link to another disk
    places = sorted({str(path) for run in runs for path in (run.shards.absolute(), run.shards.resolve())})
    con.execute(f"SET allowed_directories = [{', '.join(quoted(f'{place}/') for place in places)}]")
    con.execute("SET enable_external_access = false")
    con.execute("SET lock_configuration = true")
    return con


def file_list(paths: list[Path]) -> str:
    """Files as a list in SQL, for `read_parquet`."""
    return f"[{', '.join(quoted(str(path)) for path in paths)}]"


def quoted(text: str) -> str:
    """A text in SQL."""
    return "'" + text.replace("'", "''") + "'"


def first_line(error: Exception) -> str:
    """What DuckDB says, without the excerpt of the statement that follows."""
    return str(error).partition("\n")[0]
