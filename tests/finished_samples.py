"""Finished samples as the supervisor leaves them: open rows in a ledger, sealed shards, a manifest."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Iterable
from contextlib import closing
from typing import Any

import pyarrow.parquet as pq

from backend.records import Row
from backend.rows import COLUMNS, arrow_table, record_from_row
from backend.run_dir import RunDir, open_ledger
from tests.sample_rows import make_row

_SUMMED = ("prompt_tokens", "completion_tokens", "reasoning_tokens")


def add_open(run: RunDir, rows: Iterable[Row]) -> None:
    """Rows that no shard holds yet."""
    with closing(open_ledger(run)) as con:
        con.executemany(
            f"INSERT INTO stored_rows ({', '.join(COLUMNS)}) VALUES ({', '.join('?' * len(COLUMNS))})",
            [record_from_row(row) for row in rows],
        )


def seal(run: RunDir, dataset: str, number: int) -> None:
    """The dataset's open rows become its shard `number`, as the job does it; their space is freed later."""
    with closing(open_ledger(run)) as con:
        through = "ifnull((SELECT seq FROM sealed_through WHERE dataset = ?), 0)"
        query = f"SELECT seq, {', '.join(COLUMNS)} FROM stored_rows WHERE dataset = ? AND seq > {through} ORDER BY seq"
        records = [tuple(record) for record in con.execute(query, (dataset, dataset))]
        path = run.shard(dataset, number)
        path.parent.mkdir(exist_ok=True)
        pq.write_table(arrow_table(record[1:] for record in records), path, compression="zstd")
        sums = {name: sum(record[1 + COLUMNS.index(name)] or 0 for record in records) for name in _SUMMED}
        finished_at = [record[1 + COLUMNS.index("finished_at")] for record in records]
        entry: dict[str, Any] = {
            "dataset": dataset, "number": number, "path": str(path.relative_to(run.root)), "rows": len(records),
            **sums, "rejected": 0, "truncated": 0,
            "bytes": path.stat().st_size, "sha256": hashlib.sha256(path.read_bytes()).hexdigest(),
            "first_finished_at": min(finished_at),
            "last_finished_at": max(finished_at), "sealed_at": time.time(),
        }  # fmt: skip
        con.execute("BEGIN")
        con.execute(
            f"INSERT INTO sealed_shards ({', '.join(entry)}) VALUES ({', '.join('?' * len(entry))})", tuple(entry.values())
        )
        con.execute("INSERT OR REPLACE INTO sealed_through VALUES (?, ?)", (dataset, records[-1][0]))
        con.execute("COMMIT")


def replace_row(run: RunDir, row: Row) -> None:
    """A redo has replaced this row: it no longer counts."""
    with closing(open_ledger(run)) as con:
        con.execute(
            "INSERT INTO superseded (dataset, sample_id, turn, attempt, position, completion_tokens, finish_reason, at, reason)"
            " VALUES (?, ?, ?, ?, ?, ?, ?, 1.0, 'redo')",
            (row.dataset, row.sample_id, row.turn, row.attempt, row.position, row.completion_tokens, row.finish_reason),
        )


def sample(number: int, **changes: Any) -> Row:
    """A plain sample of dataset alpha."""
    return make_row(number, **({"dataset": "alpha"} | changes))
