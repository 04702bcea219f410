"""SGLang versions: how one is read and which are supported."""

from __future__ import annotations

import re
from typing import Final

SUPPORTED_SERIES: Final = (0, 5)  # major, minor
SUPPORTED_RANGE: Final = "0.5.x"


def server_version(text: str | None) -> tuple[int, int, int] | None:
    """`0.5.23`, `v0.5.4.post2`, `0.5.0rc1` → (major, minor, patch); None where no version can be read."""
    match = re.match(r"\s*v?(\d+)\.(\d+)(?:\.(\d+))?", text or "")
    if match is None:
        return None
    return int(match[1]), int(match[2]), int(match[3] or 0)


def is_supported(text: str | None) -> bool | None:
    """Whether the version lies in the supported range; None where it is not known."""
    version = server_version(text)
    return None if version is None else version[:2] == SUPPORTED_SERIES
