"""Forecast: when the run ends as a range, how that came about, what it rests on, and what would make it sooner."""

from __future__ import annotations

import time
from datetime import datetime, timedelta

import streamlit as st

from backend import forecasts
from backend.config import ConfigError
from backend.forecasts import Said
from backend.report.ending import Ending, EndKind, end_words, ending
from backend.report.forecast import ForecastView, forecast_view
from backend.report.live import LiveError
from backend.run_dir import RunDir, RunDirError
from pages.apply import deadline_form
from pages.clock import zone
from pages.forecast_parts import draw_as_of, draw_assumptions, draw_charts
from pages.headline import answer
from pages.live.routes import LIVE
from pages.nothing import cannot, no_run
from pages.options import ask, draw_options, draw_question, options_of
from pages.pressing import tell_answers
from pages.run_picker import picked_run
from pages.share_button import share_button
from pages.tables import heading
from pages.what_if import what_if

HEAD_S, CHARTS_S = 5, 60
SUGGESTED_H = 24  # from now, where nobody has set a deadline yet
_DRAWN = "forecast-drawn"


@st.fragment(run_every=HEAD_S)
def head(run: RunDir) -> None:
    """The answer, and what became of what was pressed."""
    try:
        view = LIVE.fresh_view(run)
        said = forecasts.read_newest(run)
        end = ending(view, said)
    except (LiveError, RunDirError) as error:
        cannot("The forecast cannot be read", error)
        return
    if st.session_state.get(_DRAWN) not in (None, _kind(run, said, end)):
        st.rerun()  # what stands below was drawn of another plan, or before anything could be said
    words, behind = end_words(end, time.time(), zone())
    answer(words, f"{behind}.")
    tell_answers(run)


@st.fragment(run_every=CHARTS_S)
def body(run: RunDir) -> None:
    """All that rests on the newest forecast, read again each minute."""
    now = time.time()
    try:
        view = forecast_view(run, now)
    except (ConfigError, RunDirError) as error:
        cannot("What the forecast rests on cannot be read", error)
        return
    st.session_state[_DRAWN] = _kind(run, view.said, view.ending)
    with st.container(horizontal=True, vertical_alignment="center", horizontal_alignment="distribute"):
        draw_as_of(view)
        with st.container(horizontal=True, width="content"):
            draw_deadline(run, view)
            st.button("Read again", key="forecast-again")
    draw_ways(run, view)
    draw_charts(view)
    draw_assumptions(view.assumptions)
    if view.ending.kind is not EndKind.FINISHED:
        what_if(run, view.ending, now)


def _kind(run: RunDir, said: Said | None, end: Ending) -> tuple[str, str, int]:
    """What has to be equal, so that the answer and what stands below it speak of the same."""
    return run.name, end.kind, said.plan if said is not None else -1


def draw_deadline(run: RunDir, view: ForecastView) -> None:
    """When it has to be done."""
    here = None if view.deadline is None else datetime.fromtimestamp(view.deadline, zone())
    suggested = datetime.fromtimestamp(view.at, zone()).replace(minute=0, second=0, microsecond=0) + timedelta(
        hours=SUGGESTED_H
    )
    deadline_form(run, here, suggested)


def draw_ways(run: RunDir, view: ForecastView) -> None:
    """What could be done to be done sooner; where there is a reason, the question stands above it."""
    if view.basis is None or view.ending.remaining is None or view.ending.remaining.p90 <= 0:
        return
    asked = ask(run, view.basis, view.settings, view.ending, deadline=view.deadline, now=view.at)
    if asked is not None:
        with st.container(key="hw-ask"):
            draw_question(asked)
    heading("Ways to be done sooner", "each with its price in data; ranges of 8 in 10 outcomes")
    options = options_of(run, view.basis, view.settings, view.deadline)
    draw_options(run, options, view.ending, view.settings, view.at)


run = picked_run()
if run is None:
    no_run()
else:
    st.session_state.pop(_DRAWN, None)  # all of it is drawn anew
    with st.container(key="hw-forecast-head", horizontal=True, horizontal_alignment="distribute"):
        with st.container(width="stretch"):
            head(run)
        share_button(run)
    body(run)
