"""Whether a sealed shard is what the manifest says: its size always, its checksum where it was written after it was sealed.

A shard is never written again, so a file that is younger than its line in the manifest was edited or copied. Reading all of
it then costs about a second a gigabyte, once in this process.
"""

from __future__ import annotations

import hashlib
import threading
from pathlib import Path
from typing import Final, NamedTuple

from backend.report.ledger_news import Shard

SLACK_S: Final = 5.0  # between clocks: the file's time is the file system's, the manifest's the supervisor's


class Mark(NamedTuple):
    """What tells that a file has changed."""

    size_bytes: int
    changed_ns: int


def mark_of(path: Path) -> Mark | None:
    """The file as it is now; None where it cannot be found."""
    try:
        seen = path.stat()
    except OSError:
        return None
    return Mark(seen.st_size, seen.st_mtime_ns)


def find_fault(shard: Shard, path: Path, mark: Mark | None) -> str | None:
    """Why a shard is not the one that was sealed, as the end of a sentence; None where it is."""
    if mark is None:
        return "is missing"
    if mark.size_bytes < shard.size_bytes:
        return f"was cut short ({mark.size_bytes:,} of {shard.size_bytes:,} bytes are left)"
    if mark.size_bytes > shard.size_bytes:
        return f"has grown since it was sealed ({mark.size_bytes:,} bytes, {shard.size_bytes:,} were sealed)"
    if mark.changed_ns / 1e9 <= shard.sealed_at + SLACK_S:
        return None
    try:
        return None if _sha256(path, mark) == shard.sha256 else "was changed after it was sealed (its checksum differs)"
    except OSError as error:
        return f"cannot be read ({error.strerror})"


_known: dict[tuple[Path, Mark], str] = {}
_known_lock = threading.Lock()


def _sha256(path: Path, mark: Mark) -> str:
    with _known_lock:
        known = _known.get((path, mark))
    if known is None:
        with path.open("rb") as file:
            known = hashlib.file_digest(file, "sha256").hexdigest()
        with _known_lock:
            _known[path, mark] = known
    return known
