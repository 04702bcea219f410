"""The question "Is there a faster way?" as one line on other pages; nothing where there is no reason to ask."""

from __future__ import annotations

import time

import streamlit as st

from backend import config, forecasts
from backend.config import ConfigError
from backend.report.ending import ending
from backend.report.faster_way import best_words
from backend.report.forecast import deadline_of
from backend.report.live import LiveError
from backend.run_dir import RunDir, RunDirError
from pages.clock import zone
from pages.live.routes import LIVE
from pages.options import ask, draw_question, options_of

EVERY_S = 60


@st.fragment(run_every=EVERY_S)
def faster_way(run: RunDir) -> None:
    """The line, read again each minute."""
    try:
        view, now = LIVE.view(run), time.time()
        settings, said = config.load(run.config), forecasts.read_newest(run)
        end, deadline = ending(view, said), deadline_of(view)
        basis = forecasts.read_basis(run) if end.remaining is not None else None
    except (LiveError, ConfigError, RunDirError):
        return  # the page says what cannot be read
    if basis is None:
        return
    asked = ask(run, basis, settings, end, deadline=deadline, now=now)
    if asked is None:
        return
    options = options_of(run, basis, settings, asked.deadline)
    with st.container(key="hw-ask", horizontal=True, vertical_alignment="center"):
        draw_question(asked, best_words(options, end, now, zone(), deadline=asked.deadline is not None))
        st.page_link("forecast.py", label="See the options", query_params={"run": run.name})
