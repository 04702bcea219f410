"""Overview: what runs, how far it is, how fast it goes, and the buttons to steer it."""

from __future__ import annotations

import streamlit as st

from backend.report.headline import headline
from backend.report.live import LiveError
from backend.run_dir import RunDir
from pages.buttons import run_buttons
from pages.dataset_table import dataset_table
from pages.faster_way import faster_way
from pages.live.component import live_part
from pages.live.routes import LIVE
from pages.nothing import cannot, no_run
from pages.pressing import tell_answers
from pages.run_picker import picked_run

TABLE_EVERY_S = 5


def draw(run: RunDir) -> None:
    """The page of one run."""
    try:
        view = LIVE.view(run)
    except LiveError as error:
        cannot(run.name, error)
        return
    with st.container(key="hw-head", horizontal=True, vertical_alignment="top"):
        live_part("head", run.name, sentence=headline(view))
        steer(run)
    question = st.container()
    live_part("figures", run.name)
    datasets(run)
    live_part("gpus", run.name)
    with question:
        faster_way(run)  # reckons for a moment: what is live stands already


@st.fragment(run_every=TABLE_EVERY_S)
def steer(run: RunDir) -> None:
    """What can be done to the run as a whole."""
    try:
        view = LIVE.fresh_view(run)
    except LiveError:
        return  # the table says it
    with st.container(key="hw-steer", horizontal=True, horizontal_alignment="right", width="content"):
        run_buttons(run, view)


@st.fragment(run_every=TABLE_EVERY_S)
def datasets(run: RunDir) -> None:
    """The table, and what became of what was pressed."""
    try:
        view, speeds, said = LIVE.fresh_view(run), LIVE.dataset_speeds(run), LIVE.said(run)
    except LiveError as error:
        cannot(run.name, error)
        return
    tell_answers(run)
    dataset_table(run, view, speeds, said)


run = picked_run()
if run is None:
    no_run()
else:
    draw(run)
