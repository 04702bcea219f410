"""The ledger: every finished sample exactly once, what was decided and what was billed, durable in groups.

Owned by the supervisor, used from its event loop. Writing in groups is `group_commit.py`, opening and repairing
`ledger_recovery.py`, moving open rows into shards `sealing.py`, finding finished samples again `ledger_search.py`.
"""

from __future__ import annotations

import asyncio
import json
import sqlite3
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import Any, Final

from backend.job.book import Book, DatasetTotals, FinishedKey, OpenRows, sums_of
from backend.job.group_commit import DuplicateRow, GroupCommit, LedgerError, RowRefused, Write
from backend.job.ledger_recovery import delete_sealed_rows, load_books, load_intents, open_repaired
from backend.job.ledger_search import find_outcomes, find_row
from backend.records import Intent, Outcome, Row
from backend.rows import COLUMNS, record_from_row, record_size_bytes, stored_sample_id
from backend.run_dir import RunDir

__all__ = ["DatasetTotals", "DuplicateRow", "FinishedKey", "Ledger", "LedgerError", "RowRefused"]

INSERT_ROW: Final = f"INSERT INTO stored_rows ({', '.join(COLUMNS)}) VALUES ({', '.join('?' * len(COLUMNS))})"


class Ledger:
    """All methods belong to the event loop's thread; what they return or await speaks of durable facts only."""

    def __init__(self, run: RunDir, con: sqlite3.Connection, books: dict[str, Book]) -> None:
        self.run = run
        self._books = books
        self._pending: set[tuple[str, str]] = set()  # appended, not yet durable
        self._facts: dict[str, str] = {row["key"]: row["value"] for row in con.execute("SELECT key, value FROM facts")}
        self._intents = load_intents(con)
        self._writer = GroupCommit(con, run.ledger, INSERT_ROW)
        self._con = con

    @classmethod
    def open(cls, run: RunDir) -> Ledger:
        """Opens and repairs the ledger.

        Raises LedgerError where work that was done is missing (nothing is changed then) and RunDirError where the database
        cannot be used at all.
        """
        con = open_repaired(run)
        try:
            books = load_books(run, con)
            return cls(run, con, books)
        except BaseException:
            con.close()
            raise

    # -- writing ---------------------------------------------------------------------------------------------------------

    def append(self, row: Row) -> asyncio.Future[None]:
        """One finished sample; the future resolves when it is durable.

        Raises DuplicateRow at once if the sample is finished or on its way. The future fails with LedgerError if the disk
        refuses: nothing of the row was written then, and the same row may be appended again. RowRefused (raised, or from the
        future) is for good.
        """
        try:
            record = record_from_row(row)
        except (OverflowError, TypeError) as error:
            raise RowRefused(f"{row.dataset}: sample {row.sample_id!a} cannot be stored: {error}.") from error
        sample_id = stored_sample_id(row.sample_id)
        book = self._book(row.dataset)
        key = (row.dataset, sample_id)
        if key in self._pending or sample_id in book.live:
            raise DuplicateRow(f"{row.dataset}: sample {row.sample_id!a} is finished already; a second row was refused.")
        if row.attempt <= book.newest_attempt(sample_id):
            raise DuplicateRow(
                f"{row.dataset}: attempt {row.attempt} of sample {row.sample_id!a} was made before "
                f"(the newest is {book.newest_attempt(sample_id)}); a redo must count up."
            )
        finished = FinishedKey(
            sample_id, row.turn, row.attempt, row.position, row.completion_tokens, row.prompt_tokens, row.reasoning_tokens,
            row.finish_reason,
        )  # fmt: skip
        size_bytes = record_size_bytes(record)

        def on_durable() -> None:
            self._pending.discard(key)
            book.add_ids([sample_id], [row.attempt], all_first=row.attempt == 1)
            book.add_sums(sums_of([finished]))
            book.add_open(row.finished_at, size_bytes)

        self._pending.add(key)
        return self._submit(record=record, on_durable=on_durable, on_failure=lambda: self._pending.discard(key))

    def supersede(self, dataset: str, keys: Iterable[FinishedKey], reason: str) -> asyncio.Future[None]:
        """Marks finished samples as no longer counting, all of them in one transaction; their rows stay where they are.

        Keys that are superseded already are passed over, so repeating it is harmless.
        """
        book = self._book(dataset)
        now = time.time()
        wanted = [k for k in keys if k.sample_id in book.live and k.attempt == book.newest_attempt(k.sample_id)]

        def run(con: sqlite3.Connection) -> None:
            con.executemany(
                "INSERT INTO superseded (dataset, sample_id, turn, attempt, position, completion_tokens, prompt_tokens,"
                " reasoning_tokens, finish_reason, at, reason) VALUES (?,?,?,?,?,?,?,?,?,?,?)",
                [(dataset, *key, now, reason) for key in wanted],
            )

        def on_durable() -> None:
            book.add_sums(sums_of(wanted), sign=-1)
            for key in wanted:
                book.add_superseded(key.sample_id, key.attempt)

        return self._submit(run=run, on_durable=on_durable)

    def record_intent(self, intent: Intent) -> asyncio.Future[None]:
        """An accepted intent; the same token twice is one."""
        if any(known.token == intent.token for known in self._intents):
            return self._submit()
        values = (
            intent.token, intent.at, intent.who, intent.subject, intent.action.value, json.dumps(intent.value)
        )  # fmt: skip

        def run(con: sqlite3.Connection) -> None:
            con.execute(
                "INSERT OR IGNORE INTO accepted_intents (token, at, who, subject, action, value) VALUES (?,?,?,?,?,?)", values
            )

        return self._submit(run=run, on_durable=lambda: self._intents.append(intent))

    def record_billed(
        self, *, at: float, source: str, dataset: str, sample_id: str, turn: int, attempt: int, prompt_tokens: int | None,
        completion_tokens: int | None, cost_usd: float | None, outcome: str,
    ) -> asyncio.Future[None]:  # fmt: skip
        """Money spent on one attempt, finished or failed. `outcome`: finished, failed, aborted."""
        values = (
            at, source, dataset, stored_sample_id(sample_id), turn, attempt, prompt_tokens, completion_tokens, cost_usd, outcome
        )  # fmt: skip

        def run(con: sqlite3.Connection) -> None:
            con.execute(
                "INSERT INTO billed_attempts (at, source, dataset, sample_id, turn, attempt, prompt_tokens,"
                " completion_tokens, cost_usd, outcome) VALUES (?,?,?,?,?,?,?,?,?,?)",
                values,
            )

        return self._submit(run=run)

    def set_fact(self, key: str, value: str) -> asyncio.Future[None]:
        """A small fact that must outlive state.sqlite. `get_fact` tells it once it is durable."""

        def run(con: sqlite3.Connection) -> None:
            con.execute("INSERT INTO facts VALUES (?, ?) ON CONFLICT (key) DO UPDATE SET value = excluded.value", (key, value))

        return self._submit(run=run, on_durable=lambda: self._facts.__setitem__(key, value))

    def move_to_shard(self, manifest: Mapping[str, Any], last_seq: int) -> asyncio.Future[None]:
        """ONE transaction: the shard enters the manifest and exactly its rows are no longer open. Used by `sealing.py`."""
        names = list(manifest)
        dataset, rows = manifest["dataset"], manifest["rows"]

        def run(con: sqlite3.Connection) -> None:
            query = "SELECT count(*) FROM stored_rows WHERE dataset = ? AND seq <= ? AND seq > ifnull("
            query += "(SELECT seq FROM sealed_through WHERE dataset = ?), 0)"
            leaving = con.execute(query, (dataset, last_seq, dataset)).fetchone()[0]
            if leaving != rows:
                raise LedgerError(f"{manifest['path']} holds {rows} rows, but {leaving} rows would leave for it; not sealed.")
            con.execute(
                f"INSERT INTO sealed_shards ({', '.join(names)}) VALUES ({', '.join('?' * len(names))})",
                tuple(manifest.values()),
            )
            con.execute("INSERT OR REPLACE INTO sealed_through VALUES (?, ?)", (dataset, last_seq))

        return self._submit(run=run, on_durable=lambda: self._book(dataset).drop_open(rows))

    def delete_sealed(self, dataset: str, last_seq: int) -> asyncio.Future[None]:
        """Frees the space of rows that are in a shard, up to `last_seq`; never of open ones. Used by `sealing.py`."""

        def run(con: sqlite3.Connection) -> None:
            delete_sealed_rows(con, dataset, last_seq)

        return self._submit(run=run)

    async def flush(self) -> None:
        """Returns when everything written before is durable. Raises LedgerError if the disk refuses."""
        await self._submit(hurry=True)

    async def close(self) -> None:
        """Commits what waits and closes the database. A ledger that was killed instead opens just as well."""
        await self._writer.close()
        self._con.close()

    # -- asking ----------------------------------------------------------------------------------------------------------

    def datasets(self) -> list[str]:
        """Names of the datasets that have rows (or had)."""
        return sorted(self._books)

    def totals(self, dataset: str) -> DatasetTotals:
        """Sealed and open minus superseded."""
        return self._book(dataset).totals()

    def is_done(self, dataset: str, sample_id: str) -> bool:
        """Whether the sample is finished and not superseded (with turns = "all" the id is `<id>/t<k>`)."""
        return stored_sample_id(sample_id) in self._book(dataset).live

    def next_attempt(self, dataset: str, sample_id: str) -> int:
        """The attempt that would be made now: 1, or one more than the newest that was finished."""
        return self._book(dataset).newest_attempt(stored_sample_id(sample_id)) + 1

    def open_rows(self, dataset: str) -> OpenRows:
        """How much waits for sealing."""
        return self._book(dataset).open_rows()

    def get_fact(self, key: str) -> str | None:
        """The durable value of a fact."""
        return self._facts.get(key)

    def accepted_intents(self) -> list[Intent]:
        """All accepted intents in the order of acceptance; `id` is None, it belonged to state.sqlite."""
        return list(self._intents)

    def find_row(self, dataset: str, sample_id: str, position: int | None = None) -> Row | None:
        """The durable row of a sample, its newest attempt, superseded or not. May take seconds; fit for a worker thread.

        The sample's `position` among the prompts spares reading most shards.
        """
        return find_row(self.run, dataset, sample_id, position)

    def outcome_keys(self, dataset: str, outcomes: Collection[Outcome]) -> Iterator[FinishedKey]:
        """Finished samples with one of these outcomes, without superseded ones: what a redo supersedes. Fit for a thread."""
        book = self._book(dataset)
        for key in find_outcomes(self.run, dataset, outcomes):
            if key.sample_id in book.live and key.attempt == book.newest_attempt(key.sample_id):
                yield key

    # -- inside ----------------------------------------------------------------------------------------------------------

    def _book(self, dataset: str) -> Book:
        return self._books.setdefault(dataset, Book())

    def _submit(
        self,
        *,
        record: tuple[Any, ...] | None = None,
        run: Callable[[sqlite3.Connection], None] | None = None,
        on_durable: Callable[[], None] | None = None,
        on_failure: Callable[[], None] | None = None,
        hurry: bool = False,
    ) -> asyncio.Future[None]:
        future = asyncio.get_running_loop().create_future()
        return self._writer.submit(Write(future, record, run, on_durable, on_failure), hurry=hurry)
