"""Opening a ledger after whatever happened: what a killed sealing left is removed, what is missing is said, sums are loaded."""

from __future__ import annotations

import json
import logging
import re
import sqlite3
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from backend.job.book import Book, DatasetTotals
from backend.job.group_commit import LedgerError
from backend.records import Intent, IntentAction
from backend.rows import LONG_COLUMNS
from backend.run_dir import RunDir, open_ledger

_SHARD_NAME: Final = re.compile(r"\d{8}\.parquet")
_SUMS: Final = (
    "total(completion_tokens), total(prompt_tokens), total(reasoning_tokens), total(finish_reason = 'rejected'),"
    " total(finish_reason = 'length')"
)

log = logging.getLogger(__name__)


def open_repaired(run: RunDir) -> sqlite3.Connection:
    """The ledger's connection, with shards/ agreeing with the manifest. Raises LedgerError; nothing is removed then."""
    try:
        con = open_ledger(run)
    except sqlite3.DatabaseError as error:
        raise LedgerError(
            f"{run.ledger} cannot be opened: {error}. If the disk is full, free some space; if the file is damaged, put a copy "
            "back. Shards that are sealed are not touched."
        ) from error
    try:
        _check_manifest(run, con)
        _remove_unfinished(run, con)
        for dataset, seq in con.execute("SELECT dataset, seq FROM sealed_through").fetchall():
            delete_sealed_rows(con, dataset, seq)
    except BaseException:
        con.close()
        raise
    return con


def delete_sealed_rows(con: sqlite3.Connection, dataset: str, last_seq: int) -> None:
    """Deletes a dataset's rows up to `last_seq`, as far as a shard holds them."""
    con.execute(
        "DELETE FROM stored_rows WHERE +dataset = :dataset AND seq <= min(:last_seq,"
        " ifnull((SELECT seq FROM sealed_through WHERE dataset = :dataset), 0))",
        {"dataset": dataset, "last_seq": last_seq},
    )


def lost_shards(run: RunDir, con: sqlite3.Connection) -> list[tuple[sqlite3.Row, str]]:
    """Entries of the manifest whose file is missing or has another size, each with words for it."""
    lost = []
    for shard in con.execute("SELECT * FROM sealed_shards ORDER BY dataset, number").fetchall():
        path = run.root / shard["path"]
        try:
            size_bytes = path.stat().st_size
        except FileNotFoundError:
            what = "is missing"
        else:
            if size_bytes == shard["bytes"]:
                continue
            what = f"has {size_bytes:,} bytes instead of {shard['bytes']:,}"
        words = f"{path} {what} ({shard['rows']:,} samples, {shard['completion_tokens']:,} completion tokens)"
        lost.append((shard, words))
    return lost


def _check_manifest(run: RunDir, con: sqlite3.Connection) -> None:
    lost = lost_shards(run, con)
    if lost:
        raise LedgerError(
            "Sealed samples are gone: "
            + "; ".join(words for _, words in lost)
            + ". Put the files back from a copy (or mount the "
            "disk they lie on), then start again. If they are lost for good, `python -m backend.job.give_up "
            f"{run.root}` gives them up, so that their samples are generated again. Nothing was changed."
        )


def _remove_unfinished(run: RunDir, con: sqlite3.Connection) -> None:
    known = {run.root / row["path"] for row in con.execute("SELECT path FROM sealed_shards")}
    leftovers = [p for p in sorted(run.shards.glob("*/*.parquet")) if p not in known and _SHARD_NAME.fullmatch(p.name)]
    remove = [path for path in leftovers if _is_remade_from_open_rows(path, con)]
    for path in [*remove, *run.shards.glob("*/*.parquet.tmp")]:
        path.unlink()
        log.info("removed %s: it was being written when the supervisor was killed; its rows are in the ledger", path)


def _is_remade_from_open_rows(path: Path, con: sqlite3.Connection) -> bool:
    """Whether the ledger still holds every row of a shard that is not in the manifest.

    Raises LedgerError where it does not: then the ledger, not the shard, is what was lost.
    """
    try:
        with pq.ParquetFile(path) as file:
            keys = file.read(columns=["dataset", "sample_id", "turn", "attempt"]).to_pylist()
    except (pa.ArrowException, OSError) as error:
        raise LedgerError(
            f"{path} is not in the manifest of {path.parents[2] / 'ledger.sqlite'} and cannot be read ({error}). It is not a "
            "shard of this run as far as can be seen: move it elsewhere, then start again."
        ) from error
    query = (
        "SELECT 1 FROM open_rows WHERE dataset = :dataset AND sample_id = :sample_id AND turn = :turn AND attempt = :attempt"
    )
    missing = sum(con.execute(query, key).fetchone() is None for key in keys)
    if missing:
        raise LedgerError(
            f"{path} holds {missing:,} samples that {path.parents[2] / 'ledger.sqlite'} knows nothing of. Was the ledger "
            "deleted, or an old copy put back? Put the right ledger.sqlite (with its -wal file) back, or move the shard "
            "elsewhere to generate its samples again. Nothing was changed."
        )
    return True


def load_books(run: RunDir, con: sqlite3.Connection) -> dict[str, Book]:
    """The books of all datasets, from the manifest's sums, the open rows and three columns of each shard."""
    books: dict[str, Book] = {}

    def book(dataset: str) -> Book:
        return books.setdefault(dataset, Book())

    for row in con.execute("SELECT dataset, sample_id, attempt FROM superseded"):
        book(row["dataset"]).add_superseded(row["sample_id"], row["attempt"])
    for row in con.execute(f"SELECT dataset, count(*), {_SUMS} FROM superseded GROUP BY dataset"):
        book(row[0]).add_sums(_sums(row), sign=-1)
    for row in con.execute(f"SELECT dataset, count(*), {_SUMS} FROM open_rows GROUP BY dataset"):
        book(row[0]).add_sums(_sums(row))
    for row in con.execute(
        "SELECT dataset, sum(rows), sum(completion_tokens), sum(prompt_tokens), sum(reasoning_tokens), sum(rejected),"
        " sum(truncated) FROM sealed_shards GROUP BY dataset"
    ):
        book(row[0]).add_sums(_sums(row))
    for row in con.execute("SELECT dataset, path FROM sealed_shards ORDER BY dataset, number"):
        _add_shard_ids(book(row["dataset"]), run.root / row["path"])
    # All that is stored is open here: what was sealed and not yet deleted went when the ledger was opened.
    size = " + ".join(f"ifnull(length({name}), 0)" for name in LONG_COLUMNS)
    for row in con.execute(f"SELECT dataset, sample_id, attempt, finished_at, {size} AS size FROM stored_rows ORDER BY seq"):
        book(row["dataset"]).add_ids([row["sample_id"]], [row["attempt"]], all_first=row["attempt"] == 1)
        book(row["dataset"]).add_open(row["finished_at"], row["size"])
    return books


def load_intents(con: sqlite3.Connection) -> list[Intent]:
    """All accepted intents, in the order of acceptance."""
    return [
        Intent(row["subject"], IntentAction(row["action"]), json.loads(row["value"]), row["who"], row["at"], row["token"])
        for row in con.execute("SELECT * FROM accepted_intents ORDER BY seq")
    ]


def _add_shard_ids(book: Book, path: Path) -> None:
    try:
        with pq.ParquetFile(path) as file:
            table = file.read(columns=["sample_id", "attempt"])
    except (pa.ArrowException, OSError) as error:
        raise LedgerError(f"{path} cannot be read: {error}. Put the file back from a copy, then start again.") from error
    attempts = table["attempt"]
    all_first = table.num_rows == 0 or pc.max(attempts).as_py() == 1
    book.add_ids(
        table["sample_id"].to_pylist(), [] if all_first and not book.attempts else attempts.to_pylist(), all_first=all_first
    )


def _sums(row: Any) -> DatasetTotals:
    return DatasetTotals(*(int(value) for value in tuple(row)[1:]))
