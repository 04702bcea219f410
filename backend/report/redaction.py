"""Takes keys and passwords out of what is shown: SGLang prints all its arguments, its API key among them, into its log."""

from __future__ import annotations

import re
from typing import Final

_SECRET: Final = re.compile(
    r"""(?P<name>["']?[A-Za-z0-9_-]*(?:api[_-]?key|token|password|secret)["']?\s*[=:]\s*)(?P<value>'[^']+'|"[^"]+"|[^\s,'")\]}]{8,})""",
    re.IGNORECASE,
)
_BEARER: Final = re.compile(r"(?i)(bearer\s+|--api-key[= ]\s*)\S+")
_OWN_KEY: Final = re.compile(r"headway-[0-9a-f]{16,}")


def without_secrets(text: str) -> str:
    """The text with `***` in place of what looks like a key, a token, a password or a bearer header."""
    safe = _SECRET.sub(lambda match: f"{match['name']}***", text)
    return _OWN_KEY.sub("headway-***", _BEARER.sub(r"\1***", safe))
