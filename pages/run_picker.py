"""Which run the pages speak of: named in the address (`?run=`), chosen in the sidebar, kept from page to page."""

from __future__ import annotations

import streamlit as st

from backend.report.run_list import latest_run
from backend.run_dir import RunDir, RunDirError
from backend.runs import list_runs, runs_folder

_PARAMETER = "run"
_WIDGET = "picked_run"


def pick_run() -> None:
    """Draws the picker in the sidebar. Without any run it draws nothing: the pages say what to do then."""
    runs = {run.name: run for run in _runs()}
    if not runs:
        st.session_state.pop(_PARAMETER, None)
        return
    wanted = st.query_params.get(_PARAMETER) or st.session_state.get(_PARAMETER)
    names = list(runs)
    latest = None if wanted in runs else latest_run(list(runs.values()))
    name = latest.name if latest is not None else str(wanted)
    # The address leads and the widget follows: a run that was just created is picked by leading there.
    st.session_state[_WIDGET] = name
    with st.sidebar:
        st.selectbox("Run", names, label_visibility="collapsed", key=_WIDGET, on_change=_take_choice)
    st.session_state[_PARAMETER] = name
    st.query_params[_PARAMETER] = name


def picked_run() -> RunDir | None:
    """The run that was picked; None without any."""
    name = st.session_state.get(_PARAMETER)
    return next((run for run in _runs() if run.name == name), None)


def _runs() -> list[RunDir]:
    """All runs; none where their folder cannot be read, which is told on the page by `no_run`."""
    try:
        return list_runs(runs_folder())
    except RunDirError:
        return []


def _take_choice() -> None:
    st.session_state[_PARAMETER] = st.query_params[_PARAMETER] = st.session_state[_WIDGET]
