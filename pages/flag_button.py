"""Flags a sample with a note, or takes the flag away. It changes nothing of the run, so a second press does no harm."""

from __future__ import annotations

import streamlit as st

from backend.control.flags import LONGEST_NOTE, flag_sample, unflag_sample
from backend.records import Row
from backend.report.flags import read_flag
from backend.run_dir import RunDir
from pages.clock import local
from pages.pressing import attempt, confirm, who
from pages.tables import said


def flag_button(run: RunDir, row: Row) -> None:
    """Flag…, which asks for a note, or what takes the flag away."""
    if read_flag(run, row) is not None:
        st.button("Take the flag away", key="flag-remove", on_click=_unflag, args=(run, row))
    elif st.button("Flag…", key="flag", help="Mark this sample, with a note"):
        _ask_note(run, row)


def draw_flag(run: RunDir, row: Row) -> None:
    """Who flagged the sample, when and why; nothing where nobody did."""
    flag = read_flag(run, row)
    if flag is not None:
        said(f"Flagged {local(flag.at)} by {flag.who}{': ' if flag.note else ''}{flag.note}")


@st.dialog("Flag this sample?")
def _ask_note(run: RunDir, row: Row) -> None:
    st.text_area("Note", max_chars=LONGEST_NOTE, key="flag_note", placeholder="why, for whoever reads it")
    confirm("Flag it", lambda: _flag(run, row), harmless=True)


def _flag(run: RunDir, row: Row) -> None:
    note = st.session_state["flag_note"].strip()
    attempt(lambda: flag_sample(run, row.dataset, row.sample_id, row.turn, row.attempt, note=note, who=who()))


def _unflag(run: RunDir, row: Row) -> None:
    attempt(lambda: unflag_sample(run, row.dataset, row.sample_id, row.turn, row.attempt))
