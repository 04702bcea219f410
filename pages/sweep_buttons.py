"""The buttons of a sweep: begin one, cancel it, take over a concurrency. Each asks first where the run would work otherwise."""

from __future__ import annotations

from collections.abc import Sequence

import streamlit as st

from backend.control.intents import want_no_sweep, want_setting, want_sweep
from backend.heartbeat import SupervisorState
from backend.report.formatting import plural
from backend.report.sweep import DEFAULT_LEVELS, SweepView, what_it_changes
from backend.report.views import RunView
from backend.run_dir import RunDir
from pages.pressing import confirm, who, wish_of, write_wish

LEVEL_S = 120
FORM = "sweep_levels"


def sweep_button(run: RunDir, view: RunView, told: SweepView) -> None:
    """Cancel sweep while one runs, else Sweep…; nothing where nobody could carry it out."""
    if view.supervisor.state is not SupervisorState.ALIVE:
        return
    if told.is_running and told.sweep is not None:
        key, token = wish_of(run, "run", f"cancel-sweep {told.sweep.id}", "sweep")
        wish = lambda t: want_no_sweep(run, who(), token=t)  # noqa: E731 - as all wishes are handed on
        st.button(
            "Cancel sweep", key=key, help="Its finished levels stay; the run goes on", on_click=write_wish, args=(wish, token)
        )
        return
    key, _ = wish_of(run, "run", "sweep", "sweep")
    if st.button("Sweep…", key=key, help="Measure the speed at several concurrencies; asks first"):
        _confirm_sweep(run, view)


def use_button(run: RunDir, view: RunView, told: SweepView) -> None:
    """Use this concurrency: offered where another one than now is recommended, and somebody can carry it out."""
    found = told.recommendation
    if found is None or found.concurrency == told.concurrency or view.supervisor.state is not SupervisorState.ALIVE:
        return
    key, _ = wish_of(run, "run", f"concurrency {found.concurrency}", "sweep")
    if st.button(f"Use {found.concurrency} in flight…", key=key, help="Says what changes first"):
        _confirm_use(run, told, found.concurrency)


@st.dialog("Sweep the concurrency?")
def _confirm_sweep(run: RunDir, view: RunView) -> None:
    st.session_state.setdefault(FORM, ", ".join(map(str, DEFAULT_LEVELS)))
    text = st.text_input("Requests in flight, ascending", key=FORM)
    limit_s = st.number_input("Seconds for a level, at most", 5, 3_600, LEVEL_S, step=5, key="sweep_level_s")
    drain = not st.toggle("Do not wait for requests beyond the first level; they are made again later", key="sweep_abort")
    levels = levels_in(text)
    if levels is None:
        st.text("Write whole numbers of at least 1 with commas between, each larger than the one before: 1, 4, 8, 16.")
        return
    flying = view.in_flight or 0
    more = plural(max(flying - levels[0], 0), "request")
    st.text(
        f"The run's own prompts are measured at {plural(len(levels), 'level')}, up to {limit_s * len(levels) / 60:.0f} min "
        f"altogether. {more} in flight {'finish' if drain else 'are aborted'} first.\nMeanwhile the run makes fewer tokens; "
        f"every answer counts, and afterwards {view.concurrency} are in flight again."
    )
    _, token = wish_of(run, "run", f"sweep {text} {limit_s} {drain}", "dialog")
    confirm(
        "Sweep",
        lambda: write_wish(lambda t: want_sweep(run, levels, who(), level_limit_s=float(limit_s), drain=drain, token=t), token),
        harmless=True,
    )


@st.dialog("Use this concurrency?")
def _confirm_use(run: RunDir, told: SweepView, concurrency: int) -> None:
    st.text(f"Concurrency {told.concurrency} → {concurrency}. {what_it_changes(told, concurrency)}")
    _, token = wish_of(run, "run", f"concurrency {concurrency}", "dialog")
    confirm(
        f"Use {concurrency}",
        lambda: write_wish(lambda t: want_setting(run, "concurrency", str(concurrency), who(), token=t), token),
        harmless=True,
    )


def levels_in(text: str) -> Sequence[int] | None:
    """What somebody typed; None where it is no list of levels."""
    parts = [part.strip() for part in text.split(",") if part.strip()]
    if not parts or not all(part.isascii() and part.isdigit() and len(part) < 6 for part in parts):
        return None
    levels = [int(part) for part in parts]
    return levels if levels == sorted(set(levels)) and levels[0] >= 1 else None
