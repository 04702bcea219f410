"""Small tables beside the samples that a question may name: budgets, events, replaced rows, billed attempts, flags.

They are read when a question names them, each at one moment; where a file or a table is missing they are empty.
"""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from backend.config import load
from backend.heartbeat import has_table, read_heartbeat, reading
from backend.run_dir import RunDir

if TYPE_CHECKING:
    import duckdb


@dataclass(frozen=True, slots=True)
class SideTable:
    """A table: its columns in DuckDB's words, and what it holds, for people."""

    columns: str
    holds: str
    table: str | None = None  # where its rows stand in a database of the run


SIDE_TABLES: Final[dict[str, SideTable]] = {
    "budgets": SideTable(
        "place INTEGER, dataset VARCHAR, token_budget BIGINT, max_samples BIGINT, cap_tokens BIGINT",
        "the datasets as run.toml orders them, with the limits of now",
    ),
    "events": SideTable(
        "happened_at DOUBLE, kind VARCHAR, subject VARCHAR, severity VARCHAR, message VARCHAR, who VARCHAR",
        "what happened to the run",
        "events",
    ),
    "replaced": SideTable(
        "dataset VARCHAR, sample_id VARCHAR, position INTEGER, turn SMALLINT, attempt SMALLINT, prompt_tokens BIGINT, "
        "completion_tokens BIGINT, finish_reason VARCHAR, replaced_at DOUBLE, reason VARCHAR",
        "samples that a redo replaced",
        "superseded",
    ),
    "billed": SideTable(
        "billed_at DOUBLE, source VARCHAR, dataset VARCHAR, sample_id VARCHAR, turn SMALLINT, attempt SMALLINT, "
        "prompt_tokens BIGINT, completion_tokens BIGINT, cost_usd DOUBLE, outcome VARCHAR",
        "what an API billed, tries that failed included",
        "billed_attempts",
    ),
    "flags": SideTable(
        "dataset VARCHAR, sample_id VARCHAR, turn SMALLINT, attempt SMALLINT, flagged_at DOUBLE, who VARCHAR, note VARCHAR",
        "samples that somebody flagged",
        "flags",
    ),
}
_IN_STATE: Final = frozenset({"events", "flags"})
_NAMED: Final = re.compile(rf"\b({'|'.join(SIDE_TABLES)})\b", re.IGNORECASE)


def named_in(text: str) -> list[str]:
    """Which of the tables a query may ask; a word of the same name in a comment costs a read."""
    return sorted({name.lower() for name in _NAMED.findall(text)})


def create(con: duckdb.DuckDBPyConnection, run: RunDir, names: Iterable[str]) -> None:
    """Makes the tables, for this connection alone. Raises RunDirError, ConfigError, duckdb.Error."""
    import pyarrow as pa

    for name in names:
        con.execute(f"CREATE OR REPLACE TEMP TABLE {name} ({SIDE_TABLES[name].columns})")
        if rows := _read(run, name):
            con.register("side_rows", pa.table({str(i): pa.array(values) for i, values in enumerate(zip(*rows, strict=True))}))
            con.execute(f"INSERT INTO {name} SELECT * FROM side_rows")
            con.unregister("side_rows")


def _read(run: RunDir, name: str) -> Sequence[Sequence[Any]]:
    source = SIDE_TABLES[name].table
    if source is None:
        return _budgets(run)
    names = [column.split()[0] for column in SIDE_TABLES[name].columns.split(", ")]
    columns = ", ".join("at" if column.endswith("_at") else column for column in names)  # `at` is a word of DuckDB's own
    return _stored(run.state if name in _IN_STATE else run.ledger, source, columns)


def _stored(database: Path, table: str, columns: str) -> list[tuple[Any, ...]]:
    with reading(database) as con:
        if con is None or not has_table(con, table):
            return []
        rows: list[sqlite3.Row] = con.execute(f"SELECT {columns} FROM {table}").fetchall()
    return [tuple(row) for row in rows]


def _budgets(run: RunDir) -> list[tuple[Any, ...]]:
    settings = load(run.config)
    heartbeat = read_heartbeat(run)
    said = {d.name: d for d in heartbeat.status.datasets} if heartbeat else {}  # limits may have changed since the start
    limits = [(said.get(d.name, d), settings.sampling_for(d).max_new_tokens) for d in settings.datasets]
    return [(i, limit.name, limit.token_budget, limit.max_samples, cap) for i, (limit, cap) in enumerate(limits)]
