"""Parts of the page Compare: one API dataset by dataset with the plan for a deadline, the notes, and how to set things up."""

from __future__ import annotations

import time
from datetime import datetime

import streamlit as st

from backend.report.compare import CompareView, plan_for
from backend.report.compare_notes import DIFFERENCES, assumption_lines, plan_sentence
from backend.report.compare_setup import api_toml, costs_toml, price_addresses, refresh_prices
from backend.report.compare_words import DATASET_HEAD, dataset_rows
from backend.run_dir import RunDir
from pages.tables import Column, draw_table, heading, said

HOUR_S = 3600.0
TOLD = "compare_refreshed"
DATASET_COLUMNS = [Column(name, right=0 < i < len(DATASET_HEAD) - 1) for i, name in enumerate(DATASET_HEAD)]
NOTE_COLUMNS = [Column("What"), Column("How it is taken")]
DIFFERENCE_COLUMNS = [Column("What"), Column("Why it matters")]


def draw_one_api(run: RunDir, view: CompareView) -> None:
    """One API against the box, dataset by dataset, and which datasets should go there so that a deadline holds."""
    names = [option.api.name for option in view.options]
    if not names:
        return
    heading(
        "One of them, dataset by dataset", "Here: when it ends in its turn. There: how long it takes if it is sent now, alone"
    )
    to, within = f"compare_api_{run.name}", f"compare_hours_{run.name}"
    if st.session_state.get(to) not in names:
        st.session_state[to] = view.best or names[0]
    st.session_state.setdefault(within, _usual_hours(view))
    with st.container(horizontal=True, vertical_alignment="bottom"):
        name = st.selectbox("Send to", names, key=to, width=260)
        hours = st.number_input("All done within, hours", 0.01, 100_000.0, key=within, step=1.0, format="%.4g", width=200)
    draw_table(DATASET_COLUMNS, dataset_rows(view, name), label=f"Datasets here and at {name}")
    plan = plan_for(view, name, float(hours) * HOUR_S)
    if plan is not None:
        said(plan_sentence(plan, float(hours) * HOUR_S))


def draw_notes(view: CompareView) -> None:
    """What the figures rest on, and what no price shows."""
    heading("What this rests on")
    draw_table(NOTE_COLUMNS, assumption_lines(view), label="Assumptions")
    heading("What no price shows")
    draw_table(DIFFERENCE_COLUMNS, DIFFERENCES, label="Differences that no price shows")


def draw_setup(view: CompareView) -> None:
    """How to have an API of one's own here, a price of the box, and newer prices."""
    addresses = price_addresses(view)
    heading("Newer prices", f"A press asks {' and '.join(addresses)}; no key and no data are sent")
    if st.button("Refresh prices", key="compare_refresh"):
        with st.spinner("Asking…"):
            st.session_state[TOLD] = refresh_prices(addresses, time.time())
        st.rerun()
    for words in st.session_state.get(TOLD, []):
        st.text(words)
    if view.case.box.usd_per_hour is None:
        heading("So that staying has a price", f"Into {view.view.path}/run.toml; this page reads it at once")
        st.code(costs_toml(), language=None)
    if not any(option.configured for option in view.options):
        heading(
            "No API is configured",
            f"Into {view.view.path}/run.toml. Compared here at once; usable from the next start of the supervisor, with the "
            "key in that variable of its environment",
        )
        st.code(api_toml(view), language=None)


def _usual_hours(view: CompareView) -> float:
    """The run's own deadline where it lies ahead, else half of what the box likely needs."""
    if view.view.deadline is not None:
        ahead_s = datetime.fromisoformat(view.view.deadline).timestamp() - view.at
        if ahead_s > 0:
            return max(round(ahead_s / HOUR_S, 2), 0.01)
    here = view.comparison.local.seconds if view.comparison is not None else None
    return max(round(here.p50 / HOUR_S / 2, 2), 0.01) if here is not None else 24.0
