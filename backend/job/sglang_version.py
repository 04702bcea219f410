"""Which SGLang versions Headway was made for, and what to say about another one."""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

SUPPORTED: Final = "0.5.x"
WITH_GAPS: Final = "0.4.x"


class Support(StrEnum):
    """How well a version is known."""

    FULL = "full"
    GAPS = "gaps"  # runs; some figures are missing
    UNTRIED = "untried"
    UNKNOWN = "unknown"  # the server did not tell, or tells a build without a number


@dataclass(frozen=True, slots=True)
class VersionVerdict:
    """A version's support, and the sentence a user reads."""

    support: Support
    sentence: str


def supported_version(version: str | None) -> VersionVerdict:
    """What to say about a server of this version (as it tells it: "0.5.23", "0.5.4.post1", None)."""
    numbers = re.match(r"v?(\d+)\.(\d+)", version or "")
    if version is None or numbers is None or numbers.groups() == ("0", "0"):
        told = "does not tell its version" if version is None else f"tells {version!r} as its version"
        return VersionVerdict(
            Support.UNKNOWN, f"The server {told}: Headway supports SGLang {SUPPORTED} and takes what it finds."
        )
    major, minor = int(numbers[1]), int(numbers[2])
    if (major, minor) == (0, 5):
        return VersionVerdict(Support.FULL, f"SGLang {version} is supported ({SUPPORTED}).")
    if (major, minor) == (0, 4):
        return VersionVerdict(
            Support.GAPS,
            f"SGLang {version} is older than what Headway supports ({SUPPORTED}): it runs, but live token rates, the"
            " scheduler's heartbeat and KV figures may be missing and are shown as –. Update SGLang if you can.",
        )
    age = "newer" if (major, minor) > (0, 5) else "older"
    return VersionVerdict(
        Support.UNTRIED,
        f"SGLang {version} is {age} than what Headway was tried with ({SUPPORTED}, {WITH_GAPS} with gaps): figures may"
        " be missing. Compare the first samples with what you expect.",
    )
