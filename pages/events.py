"""What happened, when, and who asked for it: newest first, filtered, page by page, as plain text."""

from __future__ import annotations

import time

import streamlit as st

from backend.records import Severity
from backend.report.events import EventFilter, events_csv, events_headline, read_counts, read_events
from backend.report.formatting import plain, plural
from backend.run_dir import RunDir, RunDirError
from pages.headline import headline
from pages.nothing import cannot, no_run
from pages.run_picker import picked_run
from pages.states import of_severity
from pages.tables import Column, Moment, draw_table

PER_PAGE = 50
REFRESH_S = 5
LOUDNESS = {
    "All": (),
    "Warnings and errors": (Severity.WARNING, Severity.ERROR),
    "Errors": (Severity.ERROR,),
}
COLUMNS = [Column("Time"), Column("Severity"), Column("Subject"), Column("What happened"), Column("By")]


@st.fragment(run_every=REFRESH_S)
def head(run: RunDir) -> None:
    """How much has happened."""
    try:
        headline(events_headline(read_counts(run), time.time()))
    except RunDirError:
        return  # the list says why


def ask_filter(subjects: tuple[str, ...]) -> EventFilter:
    """What the reader wants to see."""
    with st.container(horizontal=True, vertical_alignment="bottom"):
        loudness = st.selectbox("Show", list(LOUDNESS), key="events_loudness", width=200)
        subject = st.selectbox(
            "Subject", ["", *subjects], key="events_subject", format_func=lambda s: plain(s, keep="") or "All", width=200
        )
        text = st.text_input("Search", key="events_text", placeholder="words, a kind, or who", width=260)
    return EventFilter(LOUDNESS[loudness], subject or None, text)


@st.fragment(run_every=REFRESH_S)
def draw_events(run: RunDir, wanted: EventFilter) -> None:
    """One page of them."""
    try:
        number = st.session_state.get("events_page", 1)
        page = read_events(run, wanted, limit=PER_PAGE, offset=(number - 1) * PER_PAGE)
        if not page.events and number > 1:  # the filter leaves fewer pages than the one that was open
            st.session_state["events_page"] = 1
            page = read_events(run, wanted, limit=PER_PAGE)
    except RunDirError as error:
        cannot("The events cannot be read", error)
        return
    if not page.total:
        st.text("No event matches." if page.subjects else "Events stand here once the run is started.")
        return
    rows = [[Moment(e.at), of_severity(e.severity), e.subject, e.message, e.who] for e in page.events]
    draw_table(COLUMNS, rows, label="Events, newest first")
    with st.container(horizontal=True, vertical_alignment="center", horizontal_alignment="distribute"):
        st.text(plural(page.total, "event"))
        st.pagination(-(-page.total // PER_PAGE), key="events_page")
        st.download_button(
            "Export CSV",
            data=lambda: events_csv(run, wanted),
            file_name=f"{run.name}-events.csv",
            mime="text/csv",
            on_click="ignore",
            key="events-csv",
        )


run = picked_run()
if run is None:
    no_run()
else:
    try:
        subjects = read_events(run, EventFilter(), limit=0).subjects
    except RunDirError as error:
        cannot("The events cannot be read", error)
    else:
        head(run)
        draw_events(run, ask_filter(subjects))
