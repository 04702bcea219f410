"""Moves open rows into sealed shards, in a worker thread, so that neither the event loop nor group commits wait for it.

Order is what makes it exact: the file is complete and on disk under its final name before ONE ledger transaction names it in
the manifest and takes its rows out of `open_rows`. Killed before that transaction, the rows are still open and the file is
removed at the next start; killed after it, the file is the only place. The space of the rows is freed afterwards, bit by bit.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from backend.job.group_commit import LedgerError
from backend.job.ledger import Ledger
from backend.job.shard_file import write_shard

SHARD_BYTES: Final = 1 << 30  # of texts and ids: a shard is not made larger, whatever its rows
RETRY_AFTER_S: Final = 30.0  # after a seal that failed, so that a full disk is not written full each second


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
                written = await asyncio.to_thread(
                    write_shard, self._ledger.run, dataset, self._shard_rows, self._shard_bytes, self._on_step
                )
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


def _joined(one: Sealed, other: Sealed) -> Sealed:
    return Sealed(one.shards + other.shards, one.rows + other.rows, one.problem or other.problem)
