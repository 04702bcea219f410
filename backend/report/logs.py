"""The last lines of a run's logs, and what is added to them. A log may be gigabytes long and is rotated meanwhile."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, Final

from backend.run_dir import RunDir, RunDirError
from backend.runs import nearest

BLOCK_BYTES: Final = 1 << 16
MAX_LINE_BYTES: Final = 1 << 20  # a longer line is shown in pieces
POLL_S: Final = 0.2


def find_log(run: RunDir, server: str | None) -> Path:
    """The supervisor's log, or a server's by its replica's name. Raises RunDirError, with the nearest names."""
    if server is None:
        if not run.supervisor_log().is_file():
            raise RunDirError(f"{run.name} has no log yet: it was never started.")
        return run.supervisor_log()
    names = {p.name.removeprefix("server-").removesuffix(".log"): p for p in run.logs.glob("server-*.log")}
    if server not in names:
        raise RunDirError(f"{run.name} has no log of a server {server!r}. {nearest(server, sorted(names), what='server logs')}")
    return names[server]


def last_lines(path: Path, count: int) -> tuple[list[str], int]:
    """The last `count` lines, and where the file ended (an unfinished line included). Raises RunDirError."""
    try:
        with path.open("rb") as log:
            end = log.seek(0, os.SEEK_END)
            return _shown(_tail(log, end, count)), end
    except OSError as error:
        raise RunDirError(f"{path} cannot be read ({error.strerror}).") from None


def follow(path: Path, offset: int, *, stop: Callable[[], bool] = lambda: False) -> Iterator[str]:
    """Yields each line that is added after `offset`, across rotation and truncation, until `stop()`."""
    log: IO[bytes] = path.open("rb")
    rest = b""
    try:
        log.seek(offset)
        while True:
            chunk = log.read(BLOCK_BYTES)
            *lines, rest = (rest + chunk).split(b"\n")
            if len(rest) > MAX_LINE_BYTES:
                lines, rest = [*lines, rest], b""
            yield from _shown(lines)
            if chunk:
                continue
            if stop():
                return
            fresh = _reopened(path, log)
            if fresh is not None:
                log.close()
                log, rest = fresh, b""
                continue
            time.sleep(POLL_S)
    finally:
        log.close()


def last_state(line: bytes) -> str:
    """As a terminal would leave it: of a progress bar that redraws itself after a carriage return, the last state."""
    return line.rstrip(b"\r").rpartition(b"\r")[2].decode(errors="replace")


def _tail(log: IO[bytes], end: int, count: int) -> list[bytes]:
    if count <= 0:
        return []
    blocks: list[bytes] = []
    position, newlines, held = end, 0, 0
    while position > 0 and newlines <= count and held < count * MAX_LINE_BYTES:
        size = min(BLOCK_BYTES, position)
        position -= size
        log.seek(position)
        block = log.read(size)
        blocks.append(block)
        newlines += block.count(b"\n")
        held += size
    lines = b"".join(reversed(blocks)).split(b"\n")
    if lines and not lines[-1]:
        lines.pop()
    return lines[-count:]


def _shown(lines: list[bytes]) -> list[str]:
    return [last_state(line) for line in lines]


def _reopened(path: Path, log: IO[bytes]) -> IO[bytes] | None:
    """The file anew if another one has taken its name, or if it was cut; None as long as it is the same."""
    try:
        there, ours = path.stat(), os.fstat(log.fileno())
    except FileNotFoundError:
        return None
    if (there.st_dev, there.st_ino) == (ours.st_dev, ours.st_ino) and there.st_size >= log.tell():
        return None
    try:
        return path.open("rb")
    except FileNotFoundError:
        return None
