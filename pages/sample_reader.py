"""Recent samples, one at a time, as plain text: prompt, reasoning and answer apart. Nothing in them is ever interpreted."""

from __future__ import annotations

import streamlit as st

from backend.records import Outcome
from backend.report.sample_finder import Wanted, find
from backend.report.samples import SampleLine, read_sample
from backend.run_dir import RunDir, RunDirError
from pages.nothing import cannot
from pages.sample_view import draw_sample, step_through
from pages.tables import heading

KEPT = 50  # so many can be stepped through; they stay the same ones while new samples finish


@st.fragment
def draw_samples(run: RunDir, dataset: str) -> None:
    """The newest samples with Previous and Next; read when the page is opened or when asked."""
    heading("Recent samples", "newest first, as plain text")
    with st.container(horizontal=True, vertical_alignment="bottom"):
        chosen = st.selectbox("Outcome", ["all", *Outcome], format_func=_outcome_word, key="sample_outcome", width=200)
        place = f"samples/{run.root}/{dataset}/{chosen}"
        if st.button("Read the newest", key="samples-newest"):
            st.session_state.pop(place, None)
        try:
            lines = _lines(place, run, dataset, None if chosen == "all" else Outcome(chosen))
            if not lines:
                st.text("None yet.")
                return
            at = step_through(f"{place}/at", len(lines), back="Newer", on="Older", name="sample")
            sample = read_sample(run, lines[at])
        except RunDirError as error:
            cannot("The samples cannot be read", error)
            return
    if sample is None:
        st.text("This sample is no longer there: it was given up, or another ledger took the place of the one it was in.")
    else:
        draw_sample(sample, lines[at])


def _lines(place: str, run: RunDir, dataset: str, outcome: Outcome | None) -> list[SampleLine]:
    if not st.session_state.get(place):
        st.session_state[place] = find(run, Wanted(dataset, outcome), limit=KEPT)
        st.session_state[f"{place}/at"] = 0
    lines: list[SampleLine] = st.session_state[place]
    return lines


def _outcome_word(name: str) -> str:
    return name.replace("_", " ")
