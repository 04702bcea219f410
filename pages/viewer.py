"""The viewer's frame and only page: when one run ends and how it goes, for those who only watch. Nothing here can be pressed.

It imports nothing that imports `backend.control` (the linter sees to that), and shows what `backend.report.public` lets out.
"""

from __future__ import annotations

import time
from pathlib import Path

import streamlit as st

from backend.report.ending import end_words
from backend.report.forecast_charts import fan_chart
from backend.report.live import LiveError
from backend.report.watching import Watching
from pages import charts
from pages.clock import zone
from pages.headline import answer
from pages.live.component import live_part, style
from pages.tables import caption, draw_figures, draw_table, heading
from pages.viewer_parts import (
    ASSUMED,
    DATASETS,
    as_of_html,
    assumption_rows,
    brand_html,
    dataset_row,
    figures_of,
    how_it_goes_html,
)
from pages.viewer_routes import UNREADABLE, VARIABLE, watched

EVERY_S = 5
CHART_EVERY_S = 60


def draw(run: Watching) -> None:
    """The page."""
    live_part("watch", run.run.name, state="")
    now(run)
    outlook(run)


@st.fragment(run_every=EVERY_S)
def now(run: Watching) -> None:
    """What changes within seconds."""
    try:
        seen = run.now()
    except LiveError:
        caption(UNREADABLE)
        return
    st.html(brand_html(seen.public))
    words, behind = end_words(seen.ending, time.time(), zone(), others=True)
    answer(words, f"{behind}.")
    st.html(how_it_goes_html(seen.public))
    st.html(as_of_html(seen.public))
    live_part("card", run.run.name)
    draw_figures(figures_of(seen.public))
    draw_table(DATASETS, [dataset_row(d, seen) for d in seen.public.datasets], label="Datasets")


@st.fragment(run_every=CHART_EVERY_S)
def outlook(run: Watching) -> None:
    """Where finished tokens are going, and what that assumes."""
    try:
        forecast = run.forecast()
    except LiveError:
        return  # said above
    figure = fan_chart(forecast, zone(), charts.dark())
    if figure is not None:
        charts.draw(figure, key="fan")
    if forecast.assumptions:
        heading("What this assumes")
        draw_table(ASSUMED, assumption_rows(forecast), label="What this assumes")


st.set_page_config(page_title="Headway", page_icon=str(Path(__file__).with_name("icon.svg")), layout="wide")
style()
viewed = watched()
if viewed is None:
    st.text(f"This viewer was started without a run (${VARIABLE} is not set). Start it by: python -m backend view RUN")
else:
    draw(viewed)
