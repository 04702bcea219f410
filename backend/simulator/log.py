"""SGLang's log: messages to stderr, uvicorn's access lines to stdout, each with SGLang's time prefix."""

from __future__ import annotations

import sys
import time

_PHRASES = {
    200: "OK",
    400: "Bad Request",
    401: "Unauthorized",
    404: "Not Found",
    429: "Too Many Requests",
    500: "Internal Server Error",
    503: "Service Unavailable",
}


class Log:
    """Writes lines while `enabled`; tests switch it off."""

    def __init__(self, *, enabled: bool, access: bool) -> None:
        self._enabled = enabled
        self._access = enabled and access
        self._second = 0
        self._prefix = ""

    def write(self, message: str) -> None:
        """One message of SGLang itself."""
        if self._enabled:
            sys.stderr.write(f"{self._stamp()}{message}\n")
            sys.stderr.flush()

    def write_raw(self, text: str) -> None:
        """A line without prefix: progress bars, warnings."""
        if self._enabled:
            sys.stderr.write(text + "\n")
            sys.stderr.flush()

    def write_access(self, peer: str, method: str, path: str, status: int) -> None:
        """One answered HTTP request."""
        if self._access:
            phrase = _PHRASES.get(status, "")
            sys.stdout.write(f'{self._stamp()}INFO:     {peer} - "{method} {path} HTTP/1.1" {status} {phrase}\n')
            sys.stdout.flush()

    def _stamp(self) -> str:
        second = int(time.time())
        if second != self._second:
            self._second = second
            self._prefix = time.strftime("[%Y-%m-%d %H:%M:%S] ", time.localtime(second))
        return self._prefix
