"""One thread owns the ledger's connection and commits writes in groups; each write's future resolves when it is durable.

What is written and what it means is `ledger.py`'s business.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import shutil
import sqlite3
import threading
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Any, Final

GATHER_S: Final = 0.05  # how long a group is gathered; with the commit itself a write is durable well within 200 ms

log = logging.getLogger(__name__)


class LedgerError(Exception):
    """The ledger cannot do what was asked; the message says what is the matter and what to do. Nothing durable is lost."""


class RowRefused(LedgerError):  # noqa: N818  (a noun says it better)
    """That row can never be written: unlike after a failure of the disk, trying again is of no use."""


class DuplicateRow(RowRefused):
    """That sample is finished already, or an attempt as new as this one was."""


@dataclass(slots=True, eq=False)
class Write:
    """One write. Either `record` (a row for `insert`) or `run` is given."""

    future: asyncio.Future[None]
    record: Sequence[Any] | None = None
    run: Callable[[sqlite3.Connection], None] | None = None
    on_durable: Callable[[], None] | None = None  # called on the event loop before the future resolves
    on_failure: Callable[[], None] | None = None  # likewise, when nothing of it was written


class GroupCommit:
    """Writes from the event loop, committed by a thread in the order in which they were submitted."""

    def __init__(self, con: sqlite3.Connection, path: Path, insert: str, gather_s: float = GATHER_S) -> None:
        self._con = con
        self._path = path
        self._insert = insert
        self._gather_s = gather_s
        self._waiting: deque[Write] = deque()
        self._wake = threading.Event()
        self._hurry = threading.Event()
        self._closing = False
        self._thread = threading.Thread(target=self._work, name="ledger", daemon=True)
        self._thread.start()

    def submit(self, write: Write, *, hurry: bool = False) -> asyncio.Future[None]:
        """Hands a write to the thread. `hurry` ends the gathering of its group at once."""
        if self._closing:
            raise LedgerError(f"{self._path} is closed already.")
        self._waiting.append(write)
        if hurry:
            self._hurry.set()
        if not self._wake.is_set():
            self._wake.set()
        return write.future

    async def close(self) -> None:
        """Commits what waits, then ends the thread. Futures are resolved before it returns."""
        self._closing = True
        self._hurry.set()
        self._wake.set()
        await asyncio.to_thread(self._thread.join)
        await asyncio.sleep(0)  # what the thread left to the loop runs first

    def _work(self) -> None:
        while True:
            self._wake.wait()
            self._wake.clear()
            self._hurry.wait(self._gather_s)
            self._hurry.clear()
            closing = self._closing  # read before the queue: nothing is submitted after it
            group = [self._waiting.popleft() for _ in range(len(self._waiting))]
            if group:
                self._commit(group)
            if closing:
                return

    def _commit(self, group: list[Write]) -> None:
        try:
            self._apply(group)
        except Exception as error:  # noqa: BLE001  (top of the thread's loop: everybody who waits is told)
            if len(group) > 1 and not isinstance(error, sqlite3.OperationalError):
                for write in group:  # one of them is to blame: the others must not suffer
                    self._commit([write])
                return
            error = _in_our_words(error, self._path)
            log.warning("a commit failed: %s", error)
            self._answer(group, error)
        else:
            self._answer(group, None)

    def _apply(self, group: list[Write]) -> None:
        try:
            self._con.execute("BEGIN IMMEDIATE")
            for is_row, writes in groupby(group, key=lambda write: write.record is not None):
                if is_row:
                    self._con.executemany(self._insert, [write.record for write in writes if write.record is not None])
                    continue
                for write in writes:
                    if write.run:
                        write.run(self._con)
            self._con.execute("COMMIT")
        except BaseException:
            if self._con.in_transaction:
                self._con.execute("ROLLBACK")
            raise

    def _answer(self, group: list[Write], error: LedgerError | None) -> None:
        loop = group[0].future.get_loop()
        if not loop.is_closed():
            loop.call_soon_threadsafe(_resolve, group, error)


def _resolve(group: list[Write], error: LedgerError | None) -> None:
    for write in group:
        callback = write.on_failure if error else write.on_durable
        if callback:
            callback()
        if write.future.done():  # who waited was cancelled
            continue
        if error:
            write.future.set_exception(error)
        else:
            write.future.set_result(None)


def _in_our_words(error: Exception, path: Path) -> LedgerError:
    if isinstance(error, LedgerError):
        return error
    if isinstance(error, sqlite3.IntegrityError):
        return DuplicateRow(f"{path} holds that already, it was refused: {error}.")
    if isinstance(error, sqlite3.DatabaseError | OSError) and not isinstance(error, sqlite3.ProgrammingError):
        return LedgerError(disk_words(error, path))
    return RowRefused(f"{path}: a row was refused: {error} ({type(error).__name__}). This one sample is not kept.")


def disk_words(error: Exception, path: Path) -> str:
    """What failed and what to do, from an error of SQLite or of the operating system while writing `path`."""
    full = getattr(error, "errno", None) in (errno.ENOSPC, errno.EDQUOT)
    if full or getattr(error, "sqlite_errorname", "") == "SQLITE_FULL":
        return (
            f"{path} cannot grow: the disk is full ({_free_words(path)}). Free some space; finished samples are safe, and what "
            "could not be written now is written when there is room."
        )
    code = getattr(error, "sqlite_errorname", None) or type(error).__name__
    if code == "SQLITE_BUSY":
        return f"{path} is locked by another program (a database browser, a backup?). Close it; nothing is lost."
    return (
        f"{path} cannot be written: {error} ({code}; {_free_words(path)}). Check the disk (`dmesg`, `df`, quotas, limits on "
        "file sizes); finished samples are safe, and what could not be written now is written when it works again."
    )


def _free_words(path: Path) -> str:
    try:
        return f"{shutil.disk_usage(path.parent).free / 1e9:.1f} GB free"
    except OSError as error:
        return f"free space unknown: {error.strerror}"
