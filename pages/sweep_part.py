"""The part of the page Engine about concurrency: what sweeps measured, what they recommend, and the buttons for both."""

from __future__ import annotations

import time

import streamlit as st

from backend.config import ConfigError, load
from backend.report.formatting import plain
from backend.report.status import read_status
from backend.report.sweep import SHORT_HEAD, SweepView, curve_sentences, read_sweep, short_rows, sweep_sentence
from backend.report.sweep_chart import sweep_figure
from backend.report.views import RunView
from backend.run_dir import RunDir, RunDirError
from pages.charts import dark, draw
from pages.nothing import cannot
from pages.sweep_buttons import sweep_button, use_button
from pages.tables import Column, draw_table, heading

LEVELS_S, OUTCOME_S = 3, 60
COLUMNS = [Column(name, right=True) for name in SHORT_HEAD]
_SEEN = "sweep_seen"  # the state of the newest sweep as this tab drew it last


def draw_sweep(run: RunDir) -> None:
    """The whole part."""
    heading("Requests in flight", "How fast the engine is with how many at once, measured on the run's own prompts")
    sweep_levels(run)
    sweep_outcome(run)


@st.fragment(run_every=LEVELS_S)
def sweep_levels(run: RunDir) -> None:
    """How far the sweep is, its levels as they come, and the button that begins or cancels one."""
    found = _read(run, recommending=False)
    if found is None:
        return
    view, told = found
    with st.container(horizontal=True, vertical_alignment="center"):
        st.text(plain(sweep_sentence(told)))
        with st.container(horizontal=True, horizontal_alignment="right", width="content"):
            sweep_button(run, view, told)
            st.empty()
    if told.sweep is not None and told.sweep.levels:
        draw_table(COLUMNS, short_rows(told.sweep.levels), label="Levels of the sweep")
    seen = (told.sweep.id, told.sweep.state) if told.sweep else None
    if st.session_state.setdefault(_SEEN, seen) != seen:
        st.session_state[_SEEN] = seen
        st.rerun()  # what follows from a sweep is drawn once a minute, and at its end


@st.fragment(run_every=OUTCOME_S)
def sweep_outcome(run: RunDir) -> None:
    """What follows from the newest curve: knee and recommendation, a chart, and the button that takes it over."""
    found = _read(run, recommending=True)
    if found is None:
        return
    view, told = found
    for sentence in curve_sentences(told):
        st.text(plain(sentence))
    use_button(run, view, told)
    if told.curve is not None:
        sweep = told.curve.sweep
        subtitle = f"measured on {sweep.replicas} of {told.replicas} replicas" if told.replicas > 1 else "with 95 % intervals"
        scale = sweep.replicas / told.replicas  # the marks are of the whole run
        best = told.recommendation.concurrency if told.recommendation else None
        figure = sweep_figure(
            sweep.levels,
            subtitle=subtitle,
            knee=None if told.knee is None else round(told.knee * scale),
            recommended=None if best is None else max(round(best * scale), 1),
            dark=dark(),
        )
        draw(figure, key="engine-sweep")


def _read(run: RunDir, *, recommending: bool) -> tuple[RunView, SweepView] | None:
    try:
        settings = load(run.config)
        view = read_status(run, time.time(), counted=False, settings=settings)
        return view, read_sweep(run, view, settings, recommending=recommending)
    except (RunDirError, ConfigError) as error:
        cannot("What sweeps measured cannot be read", error)
        return None
