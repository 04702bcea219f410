"""A log on a page: its end, which grows in place without moving what is being read, or the lines that hold some words."""

from __future__ import annotations

import streamlit as st

from backend.report.formatting import plain, plural
from backend.report.log_tail import SEARCHED_LINES, SHOWN_MATCHES, log_names, log_path, read_tail, search
from backend.run_dir import RunDir, RunDirError
from pages.nothing import cannot
from pages.tables import heading

FOLLOW_S = 3
HEIGHT_PX = 360


def draw_logs(run: RunDir) -> None:
    """The choice of a log and of words, and what they give."""
    heading("Logs", "Keys and tokens are taken out")
    names = log_names(run)
    if not names:
        st.text("There is no log yet: it begins when the run is started.")
        return
    with st.container(horizontal=True, vertical_alignment="bottom"):
        start = next((i for i, name in enumerate(names) if name != "supervisor"), 0)
        name = st.selectbox("Log of", names, index=start, key="log_name", width=180, format_func=_name)
        words = st.text_input("Search", key="log_words", placeholder="words, whatever their case", width=280)
    if words:
        _found(run, name, words)
    else:
        _tail(run, name)


@st.fragment(run_every=FOLLOW_S)
def _tail(run: RunDir, name: str) -> None:
    key = f"log-anchor-{run.name}-{name}"
    try:
        tail = read_tail(log_path(run, name), st.session_state.get(key))
    except RunDirError as error:
        cannot("The log cannot be read", error)
        return
    st.session_state[key] = tail.anchor
    with st.container(height=HEIGHT_PX, autoscroll=True, key="hw-log"):
        st.code(tail.text or "It is empty.", language=None, wrap_lines=True)


def _found(run: RunDir, name: str, words: str) -> None:
    try:
        found = search(log_path(run, name), words)
    except RunDirError as error:
        cannot("The log cannot be read", error)
        return
    among = "" if found.searched < SEARCHED_LINES else "last "
    cut = f", the last {SHOWN_MATCHES} of them" if found.lines > SHOWN_MATCHES else ""
    st.text(f"{plural(found.lines, 'line')} of the {among}{found.searched:,} hold it{cut}.")
    if found.lines:
        with st.container(height=HEIGHT_PX, key="hw-log-found"):
            st.code(found.text, language=None, wrap_lines=True)


def _name(name: str) -> str:
    return "the supervisor" if name == "supervisor" else f"replica {plain(name, keep='')}"
