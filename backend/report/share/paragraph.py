"""PURE: what is shared as a paragraph for a chat: plain text, the answer first."""

from __future__ import annotations

from typing import Final

from backend.report.formatting import plain
from backend.report.share.snapshot import Snapshot

_TOLD: Final = 2  # assumptions on which most hangs


def paragraph(shared: Snapshot) -> str:
    """One line of text and a line break."""
    run = shared.run
    parts = [f"{run.name}: {shared.sentence}", run.sentence]
    if run.simulated:
        parts.append("The engine is simulated.")
    if run.trouble:
        parts.append(run.trouble)
    if shared.assumptions:
        assumed = "; ".join(
            f"{row.name[:1].lower()}{row.name[1:]} {row.value} ({row.source})" for row in shared.assumptions[:_TOLD]
        )
        parts.append(f"This assumes: {assumed}.")
    parts.append(f"As of {shared.as_of}, {shared.data_age}.")
    return plain(" ".join(parts), keep="") + "\n"
