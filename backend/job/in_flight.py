"""A journal of the requests that are with a server now, so that a new supervisor can abort those of the one that was killed.

It must survive the death of the process, not of the machine (no server survives that either): nothing is synced. A line is
`+ <request id> <replica>` or `- <request id>`, written with one call, so only the last one can be torn. A journal that cannot
be written stops no generation: it says so in the log, and is written whole again when it can be.
"""

from __future__ import annotations

import logging
import os
from pathlib import Path
from typing import Final, Self

COMPACT_AT_BYTES: Final = 4 << 20

log = logging.getLogger(__name__)


class InFlightJournal:
    """Writes the journal. Not thread-safe: it belongs to the event loop."""

    def __init__(self, path: Path, compact_at_bytes: int = COMPACT_AT_BYTES) -> None:
        """Goes on with what the journal says already. Raises OSError."""
        self._path = path
        self._compact_at_bytes = compact_at_bytes
        self._requests = read_in_flight(path)
        self._descriptor = -1
        self._size_bytes = 0
        self._is_whole = True  # False: a line could not be written, so the file must be made anew
        self._rewrite()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __len__(self) -> int:
        return len(self._requests)

    def add(self, rid: str, replica: str) -> None:
        """Call before the request is sent. Neither word may hold white space."""
        self._requests[rid] = replica
        self._write(f"+ {rid} {replica}\n")

    def remove(self, rid: str) -> None:
        """Call when the request was answered or its abort was confirmed. An unknown id is passed over."""
        if self._requests.pop(rid, None) is not None:
            self._write(f"- {rid}\n")

    def requests(self) -> dict[str, str]:
        """Request id → replica, oldest first."""
        return dict(self._requests)

    def close(self) -> None:
        """Closes the file; what is in flight stays written there."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    def _write(self, line: str) -> None:
        try:
            if not self._is_whole:
                self._rewrite()
                return
            text = line.encode()
            self._is_whole = os.write(self._descriptor, text) == len(text)
            self._size_bytes += len(text)
            if self._size_bytes >= self._compact_at_bytes:
                self._rewrite()
        except OSError as error:
            if self._is_whole:
                log.warning(
                    "%s cannot be written: %s. Requests in flight would not be aborted after a crash.", self._path, error
                )
            self._is_whole = False

    def _rewrite(self) -> None:
        tmp = self._path.with_name(self._path.name + ".tmp")
        text = "".join(f"+ {rid} {replica}\n" for rid, replica in self._requests.items()).encode()
        tmp.write_bytes(text)
        tmp.rename(self._path)
        self.close()
        self._descriptor = os.open(self._path, os.O_WRONLY | os.O_APPEND)
        # What is in flight must not bring the next compaction at once.
        self._size_bytes = 0
        self._is_whole = True


def read_in_flight(path: Path) -> dict[str, str]:
    """Request id → replica of what was in flight when the journal was last written; a torn tail and a missing file are fine."""
    requests: dict[str, str] = {}
    try:
        text = path.read_bytes()
    except FileNotFoundError:
        return requests
    for line in text.split(b"\n")[:-1]:  # what follows the last line break is torn, or nothing
        words = line.decode(errors="replace").split(" ")
        if words[0] == "+" and len(words) == 3:
            requests[words[1]] = words[2]
        elif words[0] == "-" and len(words) == 2:
            requests.pop(words[1], None)
    return requests
