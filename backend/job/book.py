"""What the ledger keeps in memory about one dataset: its sums, which samples are finished, and how old its open rows are.

Pure bookkeeping: no files and no clock. `ledger.py` changes a book only after the transaction behind the change is durable.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple


@dataclass(frozen=True, slots=True)
class DatasetTotals:
    """Finished and not superseded samples of a dataset, and their tokens (those that are known)."""

    samples: int = 0  # rejected ones included
    completion_tokens: int = 0
    prompt_tokens: int = 0
    reasoning_tokens: int = 0
    rejected: int = 0
    truncated: int = 0


class FinishedKey(NamedTuple):
    """One finished sample, without its texts: what counting and superseding need."""

    sample_id: str
    turn: int
    attempt: int
    position: int
    completion_tokens: int
    prompt_tokens: int | None
    reasoning_tokens: int | None
    finish_reason: str


class OpenRows(NamedTuple):
    """The rows of a dataset that no shard holds yet."""

    rows: int
    bytes: int  # of texts and token ids, about
    oldest_at: float | None  # epoch seconds; None without rows


class Book:
    """The books of one dataset."""

    def __init__(self) -> None:
        self.live: set[str] = set()  # ids (as stored) of finished samples that are not superseded
        self.attempts: dict[str, int] = {}  # newest attempt ever finished, where it is above 1 or superseded
        self._sums = [0] * 6
        self._open: deque[tuple[float, int]] = deque()  # finished_at and bytes, in the order of rowids
        self._open_bytes = 0

    def totals(self) -> DatasetTotals:
        """The sums as they are now."""
        return DatasetTotals(*self._sums)

    def open_rows(self) -> OpenRows:
        """How much waits for sealing. Rows are finished nearly in order, so the first stands for the oldest."""
        return OpenRows(len(self._open), self._open_bytes, self._open[0][0] if self._open else None)

    def add_sums(self, sums: DatasetTotals, sign: int = 1) -> None:
        """Adds (or with -1 takes away) sums that were made elsewhere."""
        values = (
            sums.samples, sums.completion_tokens, sums.prompt_tokens, sums.reasoning_tokens, sums.rejected, sums.truncated
        )  # fmt: skip
        for index, value in enumerate(values):
            self._sums[index] += sign * value

    def add_ids(self, sample_ids: list[str], attempts: Iterable[int], *, all_first: bool) -> None:
        """Marks rows as finished. `all_first`: every attempt is 1, which is quick when nothing was superseded either."""
        if all_first and not self.attempts:
            self.live.update(sample_ids)
            return
        for sample_id, attempt in zip(sample_ids, attempts, strict=True):
            if attempt > self.attempts.get(sample_id, 0):
                self.live.add(sample_id)
                if attempt > 1:
                    self.attempts[sample_id] = attempt

    def add_open(self, finished_at: float, size_bytes: int) -> None:
        """One more open row."""
        self._open.append((finished_at, size_bytes))
        self._open_bytes += size_bytes

    def drop_open(self, rows: int) -> None:
        """The oldest `rows` open rows are sealed now."""
        for _ in range(rows):
            self._open_bytes -= self._open.popleft()[1]

    def add_superseded(self, sample_id: str, attempt: int) -> None:
        """That attempt (and any before) no longer counts; a newer one may."""
        if attempt >= self.attempts.get(sample_id, 1):
            self.attempts[sample_id] = attempt
            self.live.discard(sample_id)

    def newest_attempt(self, sample_id: str) -> int:
        """The newest attempt that was ever finished, superseded or not; 0 without any."""
        return self.attempts.get(sample_id, 1 if sample_id in self.live else 0)


def sums_of(keys: Iterable[FinishedKey]) -> DatasetTotals:
    """The sums over some finished samples."""
    rows = list(keys)
    return DatasetTotals(
        samples=len(rows),
        completion_tokens=sum(k.completion_tokens for k in rows),
        prompt_tokens=sum(k.prompt_tokens or 0 for k in rows),
        reasoning_tokens=sum(k.reasoning_tokens or 0 for k in rows),
        rejected=sum(k.finish_reason == "rejected" for k in rows),
        truncated=sum(k.finish_reason == "length" for k in rows),
    )
