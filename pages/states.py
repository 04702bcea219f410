"""Draws a state: its sign, its word and its colour. Which state looks how is told in `backend.report.looks`."""

from __future__ import annotations

from html import escape

from backend.report.looks import UNKNOWN, Look, Tone, is_asked, look_of_event, of_dataset, of_engine, of_run, of_severity

__all__ = [
    "UNKNOWN",
    "Look",
    "Tone",
    "is_asked",
    "look_of_event",
    "of_dataset",
    "of_engine",
    "of_run",
    "of_severity",
    "state_html",
]


def state_html(look: Look) -> str:
    """A state for `st.html`: escaped; its colour comes from the stylesheet that the frame loads."""
    return (
        f'<span class="hw-state hw-{look.tone}"><span class="hw-sign" aria-hidden="true">{escape(look.sign)}</span>'
        f"{escape(look.word)}</span>"
    )
