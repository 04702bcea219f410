"""What tests do with a ledger again and again."""

from __future__ import annotations

import asyncio
import resource
from collections.abc import Iterator
from contextlib import closing, contextmanager

from backend.job.ledger import Ledger
from backend.records import Row
from backend.rows import row_from_record
from backend.run_dir import RunDir, open_ledger


async def append_all(ledger: Ledger, *rows: Row) -> None:
    futures = [ledger.append(row) for row in rows]
    await ledger.flush()
    await asyncio.gather(*futures)


def durable_rows(run: RunDir) -> list[Row]:
    """What another process sees."""
    with closing(open_ledger(run, read_only=True)) as con:
        return [row_from_record(record) for record in con.execute("SELECT * FROM open_rows")]


@contextmanager
def files_no_longer_than(size_bytes: int) -> Iterator[None]:
    """As on a disk that is full: this process cannot make any file longer than that."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size_bytes, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
