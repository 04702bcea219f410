"""Over which time the charts of a page go, chosen once for all of them and kept from page to page."""

from __future__ import annotations

import time

import streamlit as st

from backend.heartbeat import SupervisorState
from backend.report.series import WINDOWS_S, read_newest
from backend.report.views import RunView
from backend.run_dir import RunDir


def pick_window() -> int:
    """Draws the choice; the window's length in seconds."""
    names = list(WINDOWS_S)
    st.session_state.setdefault("window", names[1])
    with st.container(horizontal=True, vertical_alignment="bottom"):
        name = st.selectbox("Charts over the last", names, key="window", width=180, persist_state="session")
        st.button("Refresh", key="charts-refresh", help="Draw the charts anew; they do so by themselves each minute")
    return WINDOWS_S[name]


def window_end(run: RunDir, view: RunView) -> float:
    """Now while somebody measures, else when the last measurement was taken. Raises RunDirError."""
    if view.supervisor.state is SupervisorState.ALIVE:
        return time.time()
    newest = [sample["at"] for sample in read_newest(run, "driver_samples").values()]
    return float(max(newest)) + 1 if newest else time.time()
