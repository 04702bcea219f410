"""What every page says of its run: that it is simulated, and that its supervisor is dead or silent, with the remedy at hand."""

from __future__ import annotations

import streamlit as st
from streamlit.delta_generator import DeltaGenerator

from backend.report.live import LiveError
from backend.run_dir import RunDir
from pages.buttons import needs_restart, start_button
from pages.live.component import live_part
from pages.live.routes import LIVE
from pages.nothing import cannot
from pages.states import of_run

_BRAND = '<div class="hw-brand"><span class="hw-brand-sign" aria-hidden="true">▲</span>Headway{mark}</div>'


def draw_brand(place: DeltaGenerator, run: RunDir | None) -> None:
    """The brand, in `place`; beside it the word "simulated" where the engine is."""
    try:
        simulated = run is not None and LIVE.view(run).engine_kind == "simulated"
    except LiveError:
        simulated = False
    place.html(_BRAND.format(mark='<span class="hw-simulated">simulated</span>' if simulated else ""))


@st.fragment
def watch(run: RunDir) -> None:
    """A banner while something is wrong. Its words come by polling; only when the state changes this runs again."""
    try:
        view = LIVE.fresh_view(run)
    except LiveError as error:
        cannot(run.name, error)
        return
    if view.engine_kind == "simulated":
        st.html('<span class="hw-simulated-here">simulated</span>')  # shown where the sidebar with the brand is folded away
    s = view.supervisor
    with st.container(key="hw-watch", horizontal=True, vertical_alignment="center"):
        live_part("watch", run.name, state=f"{s.state} {of_run(view).word} {s.life}")
        if needs_restart(view):
            start_button(run, view, place="watch")
        else:
            st.empty()  # takes the place of a button that is not to be pressed any more
