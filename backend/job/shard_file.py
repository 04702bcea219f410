"""Writes a shard: open rows of a dataset as a Parquet file that is on disk before anything relies on it.

When a shard is due, and how its rows leave the ledger, is `sealing.py`'s.
"""

from __future__ import annotations

import hashlib
import os
import sqlite3
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq

from backend.job.group_commit import LedgerError, disk_words
from backend.rows import COLUMNS, arrow_schema, arrow_table, record_size_bytes
from backend.run_dir import RunDir, open_ledger

ROW_GROUP_ROWS: Final = 5_000
ROW_GROUP_BYTES: Final = 64 << 20  # of texts and ids: what a seal holds in memory
CHUNK_ROWS: Final = 200  # read and converted at once: a long read keeps the WAL from being checkpointed,
CHUNK_BYTES: Final = 2 << 20  # a long conversion keeps the event loop waiting, a long deletion the commits
_DICTIONARY_COLUMNS: Final = ["dataset", "source", "model", "finish_reason", "server_epoch"]
_STATISTICS_COLUMNS: Final = ["sample_id", "position", "turn", "attempt", "completion_tokens", "started_at", "finished_at"]


@dataclass(frozen=True, slots=True)
class WrittenShard:
    """A shard that waits for the ledger to take it into the manifest."""

    path: Path
    manifest: dict[str, Any]  # its entry
    chunk_ends: list[int]  # seq of the last row of each chunk; deleting goes by chunks as well


def write_shard(
    run: RunDir, dataset: str, max_rows: int, max_bytes: int, on_step: Callable[[str], None]
) -> WrittenShard | None:
    """Writes a dataset's oldest open rows, at most `max_rows` or about `max_bytes` of them, to its next shard.

    None without open rows. The file is complete and on disk under its final name, but the manifest does not know it yet.
    Raises LedgerError where the disk refuses; no file is left then.
    """
    with closing(open_ledger(run, read_only=True)) as con:
        query = "SELECT ifnull(max(number), 0) FROM sealed_shards WHERE dataset = ?"
        number = con.execute(query, (dataset,)).fetchone()[0] + 1
        path = run.shard(dataset, number)
        tmp = path.with_name(path.name + ".tmp")
        try:
            _make_folder(path.parent)
            sums = _write_rows(con, dataset, tmp, max_rows, max_bytes)
            if sums.rows == 0:
                tmp.unlink()
                return None
            size_bytes, sha256 = _sync_and_hash(tmp)
            on_step("tmp_written")
            tmp.rename(path)
            _sync_folder(path.parent)
            on_step("renamed")
        except (OSError, sqlite3.Error) as error:
            _remove(tmp, path)
            raise LedgerError(disk_words(error, path)) from error
        except BaseException:
            _remove(tmp, path)
            raise
    manifest = sums.manifest() | {
        "dataset": dataset,
        "number": number,
        "path": str(path.relative_to(run.root)),
        "bytes": size_bytes,
        "sha256": sha256,
        "sealed_at": time.time(),
    }
    return WrittenShard(path, manifest, sums.chunk_ends)


def _write_rows(con: sqlite3.Connection, dataset: str, tmp: Path, max_rows: int, max_bytes: int) -> _Sums:
    sums = _Sums()
    with pq.ParquetWriter(
        tmp,
        arrow_schema(),
        compression="zstd",
        use_dictionary=_DICTIONARY_COLUMNS,
        write_statistics=_STATISTICS_COLUMNS,
        write_page_checksum=True,
    ) as writer:
        group: list[pa.Table] = []
        group_rows = group_bytes = 0
        for table, size_bytes in _tables(con, dataset, sums, max_rows, max_bytes):
            group.append(table)
            group_rows += table.num_rows
            group_bytes += size_bytes
            if group_rows >= ROW_GROUP_ROWS or group_bytes >= ROW_GROUP_BYTES:
                writer.write_table(pa.concat_tables(group), row_group_size=group_rows)
                group, group_rows, group_bytes = [], 0, 0
        if group:
            writer.write_table(pa.concat_tables(group), row_group_size=group_rows)
    return sums


def _tables(
    con: sqlite3.Connection, dataset: str, sums: _Sums, max_rows: int, max_bytes: int
) -> Iterator[tuple[pa.Table, int]]:
    con.row_factory = None
    # The + keeps SQLite from going by the key's index and sorting whole texts: `seq` is the order.
    query = f"SELECT seq, {', '.join(COLUMNS)} FROM stored_rows WHERE seq > ? AND +dataset = ? ORDER BY seq LIMIT ?"
    through = con.execute("SELECT seq FROM sealed_through WHERE dataset = ?", (dataset,)).fetchone()
    last_seq, shard_bytes = through[0] if through else 0, 0
    while sums.rows < max_rows and shard_bytes < max_bytes:
        records: list[tuple[Any, ...]] = []
        chunk_bytes = 0
        with closing(con.execute(query, (last_seq, dataset, min(CHUNK_ROWS, max_rows - sums.rows)))) as rows:
            for row in rows:
                last_seq = row[0]
                records.append(row[1:])
                sums.add(records[-1])
                chunk_bytes += record_size_bytes(records[-1])
                if chunk_bytes >= CHUNK_BYTES:
                    break
        if not records:
            return
        sums.chunk_ends.append(last_seq)
        shard_bytes += chunk_bytes
        yield arrow_table(records), chunk_bytes


class _Sums:
    """What the manifest says about a shard's rows."""

    def __init__(self) -> None:
        self.rows = 0
        self.chunk_ends: list[int] = []
        self._tokens = dict.fromkeys(("prompt_tokens", "completion_tokens", "reasoning_tokens"), 0)
        self._ends = {"rejected": 0, "length": 0}
        self._finished_at: list[float] = []

    def add(self, record: tuple[Any, ...]) -> None:
        row = dict(zip(COLUMNS, record, strict=True))
        self.rows += 1
        for name in self._tokens:
            self._tokens[name] += row[name] or 0
        if row["finish_reason"] in self._ends:
            self._ends[row["finish_reason"]] += 1
        self._finished_at.append(row["finished_at"])

    def manifest(self) -> dict[str, Any]:
        return {
            "rows": self.rows,
            **self._tokens,
            "rejected": self._ends["rejected"],
            "truncated": self._ends["length"],
            "first_finished_at": min(self._finished_at),
            "last_finished_at": max(self._finished_at),
        }


def _make_folder(folder: Path) -> None:
    if not folder.exists():
        folder.mkdir(parents=True)
        _sync_folder(folder.parent)


def _sync_and_hash(path: Path) -> tuple[int, str]:
    with path.open("rb") as file:
        os.fsync(file.fileno())
        return os.fstat(file.fileno()).st_size, hashlib.file_digest(file, "sha256").hexdigest()


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _remove(*paths: Path) -> None:
    for path in paths:
        path.unlink(missing_ok=True)
