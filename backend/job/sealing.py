"""Moves open rows into sealed shards, in a worker thread, so that neither the event loop nor group commits wait for it.

Order is what makes it exact: the file is complete and on disk under its final name before ONE ledger transaction names it in
the manifest and takes its rows out of `open_rows`. Killed before that transaction, the rows are still open and the file is
removed at the next start; killed after it, the file is the only place. The space of the rows is freed afterwards, bit by bit.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
import sqlite3
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq

from backend.job.group_commit import LedgerError, disk_words
from backend.job.ledger import Ledger, record_size_bytes
from backend.rows import COLUMNS, arrow_schema, arrow_table
from backend.run_dir import open_ledger

ROW_GROUP_ROWS: Final = 5_000
ROW_GROUP_BYTES: Final = 64 << 20  # of texts and ids: what a seal holds in memory
SHARD_BYTES: Final = 1 << 30  # of texts and ids: a shard is not made larger, whatever its rows
RETRY_AFTER_S: Final = 30.0  # after a seal that failed, so that a full disk is not written full each second
CHUNK_ROWS: Final = 200  # read and converted at once: a long read keeps the WAL from being checkpointed,
CHUNK_BYTES: Final = 2 << 20  # a long conversion keeps the event loop waiting, a long deletion the commits
_DICTIONARY_COLUMNS: Final = ["dataset", "source", "model", "finish_reason", "server_epoch"]
_STATISTICS_COLUMNS: Final = ["sample_id", "position", "turn", "attempt", "completion_tokens", "started_at", "finished_at"]


@dataclass(frozen=True, slots=True)
class Sealed:
    """What a seal did. With a `problem` (words for an event) the rows that could not be sealed are still open, and safe."""

    shards: tuple[Path, ...] = ()
    rows: int = 0
    problem: str | None = None


class Sealer:
    """Decides when a dataset's open rows become a shard, and makes it."""

    def __init__(
        self,
        ledger: Ledger,
        *,
        shard_rows: int,
        shard_seconds: float,
        shard_bytes: int = SHARD_BYTES,
        on_step: Callable[[str], None] | None = None,
    ) -> None:
        """`on_step` hears of each step (tmp_written, renamed, moved), in whichever thread makes it: drills kill there."""
        self._ledger = ledger
        self._shard_rows = shard_rows
        self._shard_seconds = shard_seconds
        self._shard_bytes = shard_bytes
        self._on_step = on_step or (lambda step: None)
        self._one_at_a_time = asyncio.Lock()
        self._retry_at = 0.0

    def is_due(self, dataset: str, now: float) -> bool:
        """Whether enough rows, or old enough ones, are open. `now` in epoch seconds."""
        rows, size_bytes, oldest_at = self._ledger.open_rows(dataset)
        if oldest_at is None or now < self._retry_at:
            return False
        return rows >= self._shard_rows or size_bytes >= self._shard_bytes or now - oldest_at >= self._shard_seconds

    async def seal_due(self, now: float) -> Sealed:
        """One shard of every dataset that is due.

        Costs nothing where none is; else it takes seconds, so it is a task beside the tick, not a part of it.
        """
        sealed = Sealed()
        for dataset in self._ledger.datasets():
            if self.is_due(dataset, now):
                sealed = _joined(sealed, await self._seal_one(dataset))
                if sealed.problem:
                    self._retry_at = now + RETRY_AFTER_S
                    break
        return sealed

    async def seal(self, dataset: str) -> Sealed:
        """All rows of a dataset that are open now, in as many shards as they need."""
        wanted = self._ledger.open_rows(dataset).rows
        sealed = Sealed()
        while sealed.rows < wanted and not sealed.problem:
            one = await self._seal_one(dataset)
            if not one.rows and not one.problem:  # somebody else's seal took them
                break
            sealed = _joined(sealed, one)
        return sealed

    async def _seal_one(self, dataset: str) -> Sealed:
        # Shielded: a caller that is cancelled must not leave a thread that writes a shard nobody waits for.
        return await asyncio.shield(asyncio.ensure_future(self._seal_one_exclusively(dataset)))

    async def _seal_one_exclusively(self, dataset: str) -> Sealed:
        async with self._one_at_a_time:
            path: Path | None = None
            try:
                written = await asyncio.to_thread(self._write_shard, dataset)
                if written is None:
                    return Sealed()
                path = written.path
                await self._ledger.move_to_shard(written.manifest, written.chunk_ends[-1])
            except LedgerError as error:
                if path:
                    path.unlink(missing_ok=True)
                return Sealed(problem=f"{dataset}: open rows could not be sealed, they stay in the ledger. {error}")
            self._on_step("moved")
            sealed = Sealed((path,), written.manifest["rows"])
            try:
                for last_seq in written.chunk_ends:
                    await self._ledger.delete_sealed(dataset, last_seq)
            except LedgerError as error:  # the next start frees what is left
                return replace(sealed, problem=f"{dataset}: sealed, but the ledger keeps the rows' space for now. {error}")
            return sealed

    def _write_shard(self, dataset: str) -> _Written | None:
        run = self._ledger.run
        with closing(open_ledger(run, read_only=True)) as con:
            query = "SELECT ifnull(max(number), 0) FROM sealed_shards WHERE dataset = ?"
            number = con.execute(query, (dataset,)).fetchone()[0] + 1
            path = run.shard(dataset, number)
            tmp = path.with_name(path.name + ".tmp")
            try:
                _make_folder(path.parent)
                sums = self._write_rows(con, dataset, tmp)
                if sums.rows == 0:
                    tmp.unlink()
                    return None
                size_bytes, sha256 = _sync_and_hash(tmp)
                self._on_step("tmp_written")
                tmp.rename(path)
                _sync_folder(path.parent)
                self._on_step("renamed")
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
        return _Written(path, manifest, sums.chunk_ends)

    def _write_rows(self, con: sqlite3.Connection, dataset: str, tmp: Path) -> _Sums:
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
            for table, size_bytes in self._tables(con, dataset, sums):
                group.append(table)
                group_rows += table.num_rows
                group_bytes += size_bytes
                if group_rows >= ROW_GROUP_ROWS or group_bytes >= ROW_GROUP_BYTES:
                    writer.write_table(pa.concat_tables(group), row_group_size=group_rows)
                    group, group_rows, group_bytes = [], 0, 0
            if group:
                writer.write_table(pa.concat_tables(group), row_group_size=group_rows)
        return sums

    def _tables(self, con: sqlite3.Connection, dataset: str, sums: _Sums) -> Iterator[tuple[pa.Table, int]]:
        con.row_factory = None
        # The + keeps SQLite from going by the key's index and sorting whole texts: `seq` is the order.
        query = f"SELECT seq, {', '.join(COLUMNS)} FROM stored_rows WHERE seq > ? AND +dataset = ? ORDER BY seq LIMIT ?"
        through = con.execute("SELECT seq FROM sealed_through WHERE dataset = ?", (dataset,)).fetchone()
        last_seq, shard_bytes = through[0] if through else 0, 0
        while sums.rows < self._shard_rows and shard_bytes < self._shard_bytes:
            records: list[tuple[Any, ...]] = []
            chunk_bytes = 0
            with closing(con.execute(query, (last_seq, dataset, min(CHUNK_ROWS, self._shard_rows - sums.rows)))) as rows:
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


@dataclass(frozen=True, slots=True)
class _Written:
    path: Path
    manifest: dict[str, Any]
    chunk_ends: list[int]  # seq of the last row of each chunk; deleting goes by chunks as well


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


def _joined(one: Sealed, other: Sealed) -> Sealed:
    return Sealed(one.shards + other.shards, one.rows + other.rows, one.problem or other.problem)


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
