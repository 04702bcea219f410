"""The Data page's browser: samples by what they are and by words in them, one at a time, and flags on them."""

from __future__ import annotations

import streamlit as st

from backend.config import ConfigError
from backend.records import Outcome
from backend.report.formatting import plain
from backend.report.sample_finder import MOST, Order, Wanted, begin_search, find, found_by, sources
from backend.report.samples import SampleLine, read_sample
from backend.run_dir import RunDir, RunDirError
from pages.flag_button import draw_flag, flag_button
from pages.long_answer import answer, begin, forget
from pages.nothing import cannot
from pages.pressing import tell_answers
from pages.sample_view import draw_sample, step_through

PLACE = "data-search"


def draw_browser(run: RunDir, datasets: list[str]) -> None:
    """What is looked for, then one sample of it with Previous and Next."""
    try:
        with st.container(horizontal=True, vertical_alignment="bottom"):
            wanted = _ask(datasets, sources(run))
            again = st.button("Read again", key="find-again")
        lines = _found(run, wanted, again=again)
        if lines is None:
            return
        if not lines:
            st.text("No finished sample is so.")
            return
        with st.container(horizontal=True, vertical_alignment="center"):
            at = step_through(f"{PLACE}/at", len(lines), back="Previous", on="Next", name="data-sample")
            if len(lines) == MOST:
                st.text("or more")
            sample = read_sample(run, lines[at])
            if sample is not None:
                flag_button(run, sample.row)
            ids = st.toggle("Token ids", key="data_ids")
    except (ConfigError, RunDirError) as error:
        cannot("The samples cannot be read", error)
        return
    if sample is None:
        st.text("This sample is no longer there: it was given up, or another ledger took the place of the one it was in.")
        return
    tell_answers(run)
    draw_flag(run, sample.row)
    draw_sample(sample, lines[at], ids=ids)


def _ask(datasets: list[str], names: list[str]) -> Wanted:
    dataset = st.selectbox("Dataset", ["", *datasets], format_func=_all, key="find_dataset", width=180)
    outcome = st.selectbox("Outcome", ["", *Outcome], format_func=_all, key="find_outcome", width=150)
    source = st.selectbox("Source", ["", *names], format_func=_all, key="find_source", width=150)
    order = st.selectbox("First", list(Order), key="find_order", width=130)
    text = st.text_input("Words in prompt, answer or error", key="find_text", max_chars=500, width=240)
    flagged = st.toggle("Flagged", key="find_flagged")
    return Wanted(dataset or None, Outcome(outcome) if outcome else None, source or None, flagged, text.strip(), order)


def _found(run: RunDir, wanted: Wanted, *, again: bool) -> list[SampleLine] | None:
    """The samples that are wanted; they stay the same ones, while others finish, until something else is wanted."""
    asked = f"{run.root}/{wanted}"
    if st.session_state.get(f"{PLACE}/asked") != asked or again:
        st.session_state[f"{PLACE}/asked"] = asked
        st.session_state[f"{PLACE}/at"] = 0
        forget(PLACE)
        st.session_state.pop(f"{PLACE}/lines", None)
        if wanted.text:
            begin(PLACE, lambda: begin_search(run, wanted))
    if f"{PLACE}/lines" not in st.session_state:
        if not wanted.text:
            lines = find(run, wanted)
        elif (result := answer(PLACE)) is not None:
            lines = found_by(result)
            if wanted.flagged:
                flagged = set(find(run, wanted))
                lines = [line for line in lines if line in flagged]
        else:
            return None
        st.session_state[f"{PLACE}/lines"] = lines
    found: list[SampleLine] = st.session_state[f"{PLACE}/lines"]
    return found


def _all(name: str) -> str:
    return plain(name.replace("_", " "), keep="") or "all"
