"""The lock that makes one supervisor a run: a flock on a file of the run directory, held as long as the process lives.

Its file is also the last place for a sign of life: it takes no room, so a supervisor on a full disk can still write there.
"""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from backend.run_dir import RunDir

WORDS_BYTES: Final = 2_000  # within the file's first block, which it has already
RETRY_FOR_S: Final = 1.0  # who only looks whether the lock is held takes it, shared, for an instant


class AlreadyRunningError(Exception):
    """Another supervisor holds the lock."""


@contextmanager
def supervisor_lock(run: RunDir) -> Iterator[None]:
    """Holds the lock and leaves this pid in its file. Raises AlreadyRunningError."""
    fd = os.open(run.lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        _take(fd, run)
        os.ftruncate(fd, 0)
        os.pwrite(fd, str(os.getpid()).encode(), 0)
        yield
    finally:
        os.close(fd)


def leave_words(run: RunDir, words: str | None) -> None:
    """Writes behind this pid why there is no heartbeat (None: there is one again). The file's age is a sign of life then.

    Raises OSError.
    """
    text = str(os.getpid()) + ("" if words is None else f"\n{words}")
    content = text.encode(errors="replace")[:WORDS_BYTES]
    fd = os.open(run.lock, os.O_WRONLY | os.O_CLOEXEC)
    try:
        os.pwrite(fd, content, 0)
        os.ftruncate(fd, len(content))
    finally:
        os.close(fd)


def _take(fd: int, run: RunDir) -> None:
    give_up_at = time.monotonic() + RETRY_FOR_S
    while True:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() >= give_up_at:
                holder = os.pread(fd, 32, 0).decode("ascii", "replace").partition("\n")[0].strip() or "unknown"
                raise AlreadyRunningError(f"{run.name} already has a supervisor (pid {holder}).") from None
            time.sleep(0.02)
        else:
            return
