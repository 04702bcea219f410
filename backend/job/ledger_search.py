"""Finds finished samples again, in open rows and sealed shards: one by its id, or all that have an outcome.

Reads with connections of its own, so it may run in a worker thread while the ledger is written and sealed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from backend.job.book import FinishedKey
from backend.outcomes import RULE_COLUMNS, outcome_of_record
from backend.records import Outcome, Row
from backend.rows import COLUMNS, row_from_record, stored_sample_id
from backend.run_dir import RunDir, open_ledger

_KEY_COLUMNS: Final = FinishedKey._fields
_READ_COLUMNS: Final = tuple(dict.fromkeys((*_KEY_COLUMNS, *RULE_COLUMNS)))


def find_row(run: RunDir, dataset: str, sample_id: str, position: int | None = None) -> Row | None:
    """The newest attempt of a durable sample, superseded or not; None without any.

    Reads the ids of all shards, which may take seconds; with the sample's `position` only of those that may hold it.
    """
    stored = stored_sample_id(sample_id)
    with closing(open_ledger(run, read_only=True)) as con:
        query = "SELECT * FROM open_rows WHERE dataset = ? AND sample_id = ? ORDER BY attempt DESC LIMIT 1"
        record = con.execute(query, (dataset, stored)).fetchone()
        found = None if record is None else row_from_record(record)
        # The manifest is read after the open rows: a row that is being sealed meanwhile stands in one of them.
        for path in _shards(run, con, dataset):
            row = _find_in_shard(path, stored, position)
            if row and (found is None or row.attempt > found.attempt):
                found = row
    return found


def find_outcomes(run: RunDir, dataset: str, outcomes: Collection[Outcome]) -> Iterator[FinishedKey]:
    """Every durable sample with one of these outcomes, superseded ones and former attempts included."""
    columns = ", ".join(_READ_COLUMNS)
    with closing(open_ledger(run, read_only=True)) as con:
        rows = con.execute(f"SELECT {columns} FROM open_rows WHERE dataset = ?", (dataset,)).fetchall()
        seen = {(row["sample_id"], row["turn"], row["attempt"]) for row in rows}
        paths = _shards(run, con, dataset)
    yield from _matching((dict(row) for row in rows), outcomes)
    for path in paths:
        for key in _matching(_records(path), outcomes):
            if (key.sample_id, key.turn, key.attempt) not in seen:  # else it was sealed between the two reads
                yield key


def recent_lengths(run: RunDir, dataset: str, limit: int) -> list[int]:
    """Completion tokens of about the newest `limit` rows that a model answered; superseded ones are lengths as well."""
    found: list[tuple[int, str]] = []
    with closing(open_ledger(run, read_only=True)) as con:
        # stored_rows and not open_rows, because a view has no order; the + makes `seq` the order that is walked
        query = "SELECT completion_tokens, finish_reason FROM stored_rows WHERE +dataset = ? AND seq > ifnull("
        query += "(SELECT seq FROM sealed_through WHERE dataset = ?), 0) ORDER BY seq DESC LIMIT ?"
        found += [tuple(row) for row in con.execute(query, (dataset, dataset, limit))]
        paths = _shards(run, con, dataset)
    for path in paths:
        if len(found) >= limit:
            break
        with pq.ParquetFile(path) as file:
            table = file.read(columns=["completion_tokens", "finish_reason"])
        newest_first = (table[name].to_pylist()[::-1] for name in ("completion_tokens", "finish_reason"))
        found += zip(*newest_first, strict=True)
    return [tokens for tokens, finish_reason in found[:limit] if finish_reason != "rejected"]


def count_lengths(run: RunDir, dataset: str) -> Counter[int]:
    """Completion tokens of every sample that a model answered and that counts → how often. A second for some millions."""
    found: Counter[int] = Counter()
    answered = "SELECT completion_tokens, count(*) FROM {} WHERE dataset = ? AND finish_reason != 'rejected' GROUP BY 1"
    with closing(open_ledger(run, read_only=True)) as con:
        found.update(dict(tuple(row) for row in con.execute(answered.format("open_rows"), (dataset,))))
        found.subtract(dict(tuple(row) for row in con.execute(answered.format("superseded"), (dataset,))))
        paths = _shards(run, con, dataset)
    for path in paths:
        with pq.ParquetFile(path) as file:
            table = file.read(columns=["completion_tokens", "finish_reason"])
        lengths = table["completion_tokens"].filter(pc.not_equal(table["finish_reason"], "rejected"))
        for count in lengths.value_counts().to_pylist():
            found[count["values"]] += count["counts"]
    return found


def _matching(records: Iterator[dict[str, Any]], outcomes: Collection[Outcome]) -> Iterator[FinishedKey]:
    for record in records:
        if outcome_of_record(record) in outcomes:
            yield FinishedKey(*(record[name] for name in _KEY_COLUMNS))


def _records(path: Path) -> Iterator[dict[str, Any]]:
    with pq.ParquetFile(path) as file:
        for batch in file.iter_batches(batch_size=5_000, columns=list(_READ_COLUMNS)):
            yield from batch.to_pylist()


def _find_in_shard(path: Path, stored_id: str, position: int | None) -> Row | None:
    newest: Mapping[str, Any] | None = None
    with pq.ParquetFile(path) as file:
        for group in range(file.num_row_groups):
            if position is not None and not _may_hold(file.metadata.row_group(group), position):
                continue
            ids = file.read_row_group(group, columns=["sample_id"])["sample_id"]
            places = pc.indices_nonzero(pc.equal(ids, stored_id)).to_pylist()
            if not places:
                continue
            for record in file.read_row_group(group).take(pa.array(places)).to_pylist():
                if newest is None or record["attempt"] > newest["attempt"]:
                    newest = record
    return None if newest is None else row_from_record(newest)


def _may_hold(group: Any, position: int) -> bool:
    statistics = group.column(COLUMNS.index("position")).statistics
    return statistics is None or not statistics.has_min_max or statistics.min <= position <= statistics.max


def _shards(run: RunDir, con: Any, dataset: str) -> list[Path]:
    rows = con.execute("SELECT path FROM sealed_shards WHERE dataset = ? ORDER BY number DESC", (dataset,))
    return [run.root / row["path"] for row in rows]
