"""What a request that got no answer means: may it succeed later, are we refused, or is the prompt? In the server's own words.

For engine and APIs alike; what APIs put under which status besides is known to `api_driver.py`.
"""

from __future__ import annotations

import email.utils
import json
import math
import re
import time
from typing import Final

# Statuses that say nothing about the prompt: the same request may succeed later.
RETRIED_STATUSES: Final = frozenset({408, 409, 425, 429, 499, 500, 502, 503, 504, 520, 522, 524, 529})
# Statuses that say that we, not the prompt, are refused.
DENIED_STATUSES: Final = frozenset({401, 402, 403, 404, 405})
_WORDS_LIMIT: Final = 2000
_PERIOD: Final = r"\d+(?:\.\d+)? ?(?:ms|[hms])[a-z]*"  # "120ms", "20 seconds", "1m2.5s"
_UNIT_S: Final = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0}


class RetryableError(Exception):
    """No answer, and not the prompt's fault. `retry_after_s` is what the server asked for, None where it did not."""

    def __init__(self, words: str, *, retry_after_s: float | None = None) -> None:
        super().__init__(words)
        self.retry_after_s = retry_after_s


class DeniedError(RetryableError):
    """The server refuses us (key, path, balance), whatever the prompt: nothing is to be booked as rejected."""


class RejectedError(Exception):
    """The server refuses this prompt for good; the message holds its words."""


def fault(status: int, payload: bytes, retry_after: str | None) -> Exception:
    """The exception for a status other than 200."""
    words = f"HTTP {status}: {server_words(payload)}"
    if status in RETRIED_STATUSES or status >= 500:
        return RetryableError(words, retry_after_s=retry_after_s(retry_after, words))
    if status in DENIED_STATUSES:
        return DeniedError(words)
    return RejectedError(words)


def server_words(payload: bytes) -> str:
    """What an error body says, without its wrapping; at most 2,000 characters."""
    text = payload.decode("utf-8", "replace")
    try:
        body = json.loads(text)
    except ValueError:
        return text.strip()[:_WORDS_LIMIT] or "(no words)"
    error = body.get("error", body) if isinstance(body, dict) else body
    if isinstance(error, dict):
        error = error.get("message") or error.get("detail") or error
    return (error if isinstance(error, str) else json.dumps(error))[:_WORDS_LIMIT]


def retry_after_s(header: str | None, words: str) -> float | None:
    """How long the server asks to wait: seconds, an HTTP date, or words such as "try again in 120ms"."""
    if header:
        try:
            seconds = float(header)
            return max(0.0, seconds) if math.isfinite(seconds) else None
        except ValueError:
            try:
                return max(0.0, email.utils.parsedate_to_datetime(header).timestamp() - time.time())
            except ValueError:
                return None
    found = re.search(rf"(?:try again|retry) (?:in|after) ((?:{_PERIOD}\s?)+)", words, re.IGNORECASE)
    if not found:
        return None
    parts = re.findall(r"(\d+(?:\.\d+)?) ?(ms|[hms])", found[1], re.IGNORECASE)
    return sum(float(number) * _UNIT_S[unit.lower()] for number, unit in parts)
