"""The file a server prints to: opened for it, read back from where one life began, kept from filling the disk."""

from __future__ import annotations

import os
from pathlib import Path

_LARGEST_BYTES = 256 << 20
_KEPT_BYTES = 16 << 20
_TAIL_BYTES = 256 << 10


def open_log(path: Path) -> int:
    """A descriptor to append to: a file, because a pipe that nobody reads stops the server. Only the owner may read it
    (some servers print their API key). The caller closes it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)


def log_bytes(path: Path) -> int:
    """Its length; 0 where there is none yet."""
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0


def read_tail(path: Path, start: int) -> str:
    """The end of what was printed since `start` (the whole tail where the file was cut since)."""
    size = log_bytes(path)
    begin = max(start if start <= size else 0, size - _TAIL_BYTES)
    if size == 0:
        return ""
    with path.open("rb") as file:
        file.seek(begin)
        return file.read(_TAIL_BYTES).decode(errors="replace")


def cut_if_large(path: Path) -> bool:
    """Keeps the last 16 MiB in `<log>.1` and empties the file once it exceeds 256 MiB. The server goes on: it appends. What
    it prints in that instant may be lost."""
    size = log_bytes(path)
    if size <= _LARGEST_BYTES:
        return False
    with path.open("rb") as file:
        file.seek(size - _KEPT_BYTES)
        kept = file.read(_KEPT_BYTES)
    former = path.with_name(f"{path.name}.1")
    descriptor = os.open(former, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(kept)
    os.truncate(path, 0)
    return True
