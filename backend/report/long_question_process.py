"""The process that answers one long question: `long_question.py` starts it, writes the question to it and reads the answer.

It takes no more memory and time than it was given and yields to the job. Its database opens files in the runs' `shards/` only,
and from the moment in which the question itself runs no file can be written.
"""

from __future__ import annotations

import json
import os
import resource
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

from backend.report import side_tables, sql_box
from backend.report.connection import first_line, query_text
from backend.report.database import Database
from backend.report.texts import open_with_texts
from backend.run_dir import RunDir, RunDirError

if TYPE_CHECKING:
    import duckdb

NICENESS = 10
BATCH_ROWS = 10_000
_TOO_LARGE = ("Out of Memory", "maximum total string size")  # the latter: more than 2 GB in a column of one batch


def main() -> int:
    """Answers the question on stdin. The exit code is 0 also where the answer is why there is none."""
    asked = json.load(sys.stdin.buffer)
    give_up_rights(asked["limit_s"], asked["memory_bytes"])
    import duckdb
    import pyarrow as pa

    from backend.config import ConfigError

    try:
        answer(asked, sys.stdout.buffer)
    except (RunDirError, ConfigError, sql_box.SqlRefusedError) as error:
        _say(sys.stdout.buffer, {"error": str(error)})
    except (MemoryError, duckdb.OutOfMemoryException):
        _say(sys.stdout.buffer, {"error": _too_large(asked)})
    except (duckdb.Error, pa.ArrowException, OSError) as error:  # Arrow wraps what DuckDB says while rows are fetched
        words = str(error)[:2000] if asked["sql"] else first_line(error)
        _say(sys.stdout.buffer, {"error": _too_large(asked) if any(sign in words for sign in _TOO_LARGE) else words})
    return 0


def give_up_rights(limit_s: float, memory_bytes: int) -> None:
    """No core is dumped, memory is bounded, the clock runs (SIGALRM ends the process)."""
    os.nice(NICENESS)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_AS, (2 * memory_bytes, 2 * memory_bytes))
    signal.setitimer(signal.ITIMER_REAL, limit_s)


def forbid_writing() -> None:
    """No file grows any more; pipes do. SQLite needs to write a little even where it only reads, so this comes after it."""
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)  # a write fails instead of ending the process
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))


def answer(asked: dict[str, Any], out: BinaryIO) -> None:
    """Writes the answer. Raises what `main` turns into words."""
    run, text, parameters = RunDir(Path(asked["run"])), asked["sql"], asked["parameters"]
    text = query_text(asked["name"]) if text is None else sql_box.check(text)
    cursor = _cursor(run, text, f"{asked['memory_bytes'] >> 20}MB")
    if asked["other"] is not None:
        by = {"by": parameters.pop("by")}
        _compared(cursor, "ours", run, by, asked)
        _compared(cursor, "theirs", RunDir(Path(asked["other"])), by, asked)
    side_tables.create(cursor, run, side_tables.named_in(text))
    forbid_writing()
    reader = cursor.sql(text, params=parameters or None).to_arrow_reader(BATCH_ROWS)
    _write(reader, out, asked["result_rows"], asked["result_bytes"])


def _cursor(run: RunDir, text: str, memory_limit: str) -> duckdb.DuckDBPyConnection:
    if "texts" in sql_box.tables_named(text):
        return open_with_texts(run, memory_limit=memory_limit)[1]
    database = Database(run, rows_kept=0, memory_limit=memory_limit)
    database.refresh()
    return database.cursor()


def _compared(cursor: duckdb.DuckDBPyConnection, name: str, run: RunDir, by: dict[str, Any], asked: dict[str, Any]) -> None:
    _, theirs = open_with_texts(run, memory_limit=f"{asked['memory_bytes'] >> 21}MB")
    rows = theirs.sql(query_text("setup/compared"), params=by).to_arrow_table()
    cursor.register("compared_rows", rows)
    cursor.execute(f"CREATE TABLE {name} AS FROM compared_rows")
    cursor.unregister("compared_rows")


def _write(reader: Any, out: BinaryIO, most_rows: int, most_bytes: int) -> None:
    import pyarrow as pa
    from pyarrow import ipc

    batches, rows, size_bytes, cut = [], 0, 0, False
    for batch in reader:
        room = most_rows - rows
        cut = batch.num_rows > room or size_bytes + batch.nbytes > most_bytes
        if size_bytes + batch.nbytes > most_bytes:
            room = min(room, int(batch.num_rows * (most_bytes - size_bytes) / batch.nbytes))
        kept = batch.slice(0, room) if cut else batch
        batches.append(kept)
        rows, size_bytes = rows + kept.num_rows, size_bytes + kept.nbytes
        if cut:
            break
    _say(out, {"cut": cut})
    with ipc.new_stream(out, reader.schema) as stream:
        stream.write_table(pa.Table.from_batches(batches, reader.schema))


def _say(out: BinaryIO, words: dict[str, Any]) -> None:
    out.write(json.dumps(words).encode() + b"\n")
    out.flush()


def _too_large(asked: dict[str, Any]) -> str:
    return f"It needs more memory than {asked['memory_bytes'] / (1 << 30):.1f} GB. Ask for less: one dataset, fewer columns."


if __name__ == "__main__":
    sys.exit(main())
