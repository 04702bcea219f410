"""Where an export's samples come from: the ledger's open rows and the shards that its manifest names, all as of one moment.

Read in batches, whatever the run's size. A shard that is missing or is not what was sealed is passed over, in words.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from backend.heartbeat import has_table, reading
from backend.rows import COLUMNS, LONG_COLUMNS, arrow_table
from backend.run_dir import RunDir
from backend.runs import command_name

if TYPE_CHECKING:
    import sqlite3

    import pyarrow as pa

BATCH_ROWS: Final = 500
OPEN_BATCH_ROWS: Final = 50  # open rows are held twice while they are converted

Key = tuple[str, str, int, int]  # dataset, sample_id, turn, attempt


class _Shard(NamedTuple):
    dataset: str
    path: str  # relative to the run
    rows: int
    bytes: int
    sha256: str


class Source:
    """The finished samples of some datasets. `batches` is to be walked through once."""

    def __init__(self, run: RunDir, datasets: Collection[str], columns: Sequence[str]) -> None:
        """`columns`: what is read of each row, among `backend.rows.COLUMNS`."""
        self._run = run
        self._datasets = sorted(datasets)
        self._columns = list(columns)
        self._shards: list[_Shard] = []
        self.rows = 0  # samples there are, superseded ones included; known with the first batch
        self.superseded: frozenset[Key] = frozenset()  # likewise
        self.skipped: list[str] = []  # sentences about shards that were passed over

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Every sample once. Open rows come first: their transaction also says which shards there are at that moment.

        Raises RunDirError where the ledger cannot be read.
        """
        with reading(self._run.ledger) as con:
            if con is not None and has_table(con, "superseded"):
                con.row_factory = None
                con.execute("BEGIN")
                self._look(con)
                yield from self._open_batches(con)
                con.execute("COMMIT")
        for shard in self._shards:
            yield from self._shard_batches(shard)

    def _look(self, con: sqlite3.Connection) -> None:
        wanted, marks = self._datasets, ", ".join("?" * len(self._datasets))
        shards = f"SELECT dataset, path, rows, bytes, sha256 FROM sealed_shards WHERE dataset IN ({marks})"
        self._shards = [_Shard(*row) for row in con.execute(f"{shards} ORDER BY dataset, number", wanted)]
        (open_rows,) = con.execute(f"SELECT count(*) FROM open_rows WHERE dataset IN ({marks})", wanted).fetchone()
        self.rows = open_rows + sum(shard.rows for shard in self._shards)
        gone = f"SELECT dataset, sample_id, turn, attempt FROM superseded WHERE dataset IN ({marks})"
        self.superseded = frozenset(con.execute(gone, wanted))

    def _open_batches(self, con: sqlite3.Connection) -> Iterator[pa.RecordBatch]:
        unread = set(LONG_COLUMNS) - set(self._columns)
        names = ", ".join("NULL" if name in unread else name for name in COLUMNS)
        marks = ", ".join("?" * len(self._datasets))
        rows = con.execute(f"SELECT {names} FROM open_rows WHERE dataset IN ({marks})", self._datasets)
        while records := rows.fetchmany(OPEN_BATCH_ROWS):
            yield from arrow_table(records).select(self._columns).to_batches()

    def _shard_batches(self, shard: _Shard) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa
        import pyarrow.parquet as pq

        path = self._run.root / shard.path
        if fault := _fault_of(path, shard):
            self._pass_over(shard, fault)
            return
        try:
            with pq.ParquetFile(path, pre_buffer=False, buffer_size=1 << 20) as file:
                yield from file.iter_batches(batch_size=BATCH_ROWS, columns=self._columns, use_threads=False)
        except (OSError, pa.ArrowException) as error:
            self._pass_over(shard, f"cannot be read ({error})")

    def _pass_over(self, shard: _Shard, fault: str) -> None:
        self.skipped.append(
            f"{shard.path} {fault}: its {shard.rows:,} samples are missing here, all or some. Restore it from a copy, or "
            f"have them made again: python -m backend.job.give_up {command_name(self._run)}"
        )


def read_flagged(run: RunDir) -> frozenset[Key]:
    """The samples that somebody flagged. Raises RunDirError."""
    with reading(run.state) as con:
        if con is None or not has_table(con, "flags"):
            return frozenset()
        return frozenset(tuple(row) for row in con.execute("SELECT dataset, sample_id, turn, attempt FROM flags"))


def _fault_of(path: Path, shard: _Shard) -> str | None:
    """What is wrong with a shard's file, or None: what is handed over is what was sealed, byte for byte."""
    try:
        with path.open("rb") as file:
            size_bytes = path.stat().st_size
            if size_bytes != shard.bytes:
                return f"has {size_bytes:,} bytes instead of {shard.bytes:,}"
            if hashlib.file_digest(file, "sha256").hexdigest() != shard.sha256:
                return "is not what was sealed (its checksum differs)"
    except FileNotFoundError:
        return "is missing"
    except OSError as error:
        return f"cannot be read ({error.strerror})"
    return None


def records_of(batch: pa.RecordBatch, id_columns: Collection[str]) -> Iterator[dict[str, Any]]:
    """The rows of a batch as mappings. Token ids are numpy arrays (None where there are none), not lists of integers."""
    plain = batch.select([name for name in batch.schema.names if name not in id_columns]).to_pylist()
    ids = {name: _id_arrays(batch.column(name)) for name in id_columns}
    for index, record in enumerate(plain):
        yield record | {name: arrays[index] for name, arrays in ids.items()}


def _id_arrays(column: pa.ListArray) -> list[Any]:
    offsets, values = column.offsets.to_numpy(), column.values.to_numpy(zero_copy_only=False)
    present = column.is_valid().to_pylist()
    return [values[offsets[i] : offsets[i + 1]] if there else None for i, there in enumerate(present)]
