"""All runs: how each is, how far it is, when it started and last gave a sign of life, and what it takes on disk."""

from __future__ import annotations

import time

import streamlit as st

from backend.heartbeat import SupervisorState
from backend.report.formatting import DASH, compact, number, plural, share, size
from backend.report.run_list import RunLine, read_runs
from backend.run_dir import RunDirError
from backend.runs import runs_folder
from pages.clock import ago
from pages.headline import headline
from pages.nothing import cannot, no_run
from pages.states import of_run
from pages.tables import Bar, Cell, Column, Moment, RunLink, caption, draw_table, heading

COLUMNS = [
    Column("Run"),
    Column("State"),
    Column("Progress"),
    Column("Samples", right=True),
    Column("Tokens", right=True),
    Column("Started"),
    Column("Last sign of life"),
    Column("On disk", right=True),
    Column("Model"),
    Column("Engine"),
]
REFRESH_S = 30


def cells(line: RunLine, now: float) -> list[Cell]:
    """One row."""
    view = line.view
    seen = view.supervisor.heartbeat_at
    return [
        RunLink(view.name),
        of_run(view),
        Bar(line.progress, DASH if line.progress is None else share(line.progress, 1.0)),
        number(view.totals.finished_samples),
        compact(view.totals.completion_tokens),
        Moment(line.started_at),
        Moment(seen, ago(seen, now)),
        size(line.size_bytes),
        view.model,
        view.engine_kind,
    ]


@st.fragment(run_every=REFRESH_S)
def draw_runs() -> None:
    """The table, and what is no run."""
    now = time.time()
    try:
        found = read_runs(runs_folder(), now)
    except RunDirError as error:
        cannot("The runs cannot be listed", error)
        return
    if not found.runs and not found.broken:
        no_run()
        return
    working = sum(line.view.supervisor.state is SupervisorState.ALIVE for line in found.runs)
    headline(f"{plural(len(found.runs), 'run')}, {working or 'none'} of them at work.")
    caption(f"In {runs_folder()}, the one that lived last first")
    if found.runs:
        draw_table(COLUMNS, [cells(line, now) for line in found.runs], label="Runs")
    if found.broken:
        heading("Folders that cannot be read as runs")
        st.text("\n".join(found.broken))


draw_runs()
