"""The engine: what it does, its replicas and why they were restarted, its measurements, how it was started, what it prints."""

from __future__ import annotations

import time

import streamlit as st

from backend.config import ConfigError
from backend.report import engine
from backend.report.pending import read_pending
from backend.report.series import read_events_of, read_marks, read_newest, read_window
from backend.report.status import read_status
from backend.run_dir import RunDir, RunDirError
from pages.buttons import engine_buttons
from pages.charts import dark, draw
from pages.clock import zone
from pages.headline import headline
from pages.log_reader import draw_logs
from pages.nothing import cannot, no_run
from pages.pressing import tell_answers
from pages.replica_table import replica_table
from pages.run_picker import picked_run
from pages.states import of_severity
from pages.sweep_part import draw_sweep
from pages.tables import Column, Moment, draw_table, heading
from pages.window import pick_window, window_end

HEAD_S, CHARTS_S = 3, 60
EVENTS_SHOWN = 12
EVENTS = [Column("Time"), Column("Severity"), Column("What happened")]


@st.fragment(run_every=HEAD_S)
def head(run: RunDir) -> None:
    """The sentence, the button, the replicas, and what happened to them."""
    try:
        view = read_status(run, time.time())
        pending = read_pending(run, view.supervisor.heartbeat_at).get("engine")
        newest = read_newest(run, "engine_samples", time.time())
        events = read_events_of(run, "engine.%", EVENTS_SHOWN)
    except (RunDirError, ConfigError) as error:
        cannot("The engine's state cannot be read", error)
        return
    with st.container(key="hw-head", horizontal=True, vertical_alignment="top"):
        headline(engine.engine_sentence(view))
        with st.container(key="hw-steer", horizontal=True, horizontal_alignment="right", width="content"):
            engine_buttons(run, view, wanted_running=engine.is_wanted(view, pending))
    if pending:
        st.text("Asked to start; not started yet…" if pending == "running" else "Asked to stop; not stopped yet…")
    tell_answers(run)
    if view.replicas:
        heading("Replicas", "" if engine.is_known_now(view) else "As they were when the supervisor last said so")
        replica_table(view, newest)
    if events:
        heading("What happened to it", "The latest first; all of it is on the page Events")
        rows = [[Moment(e.at), of_severity(e.severity), e.message] for e in reversed(events)]
        draw_table(EVENTS, rows, label="Events of the engine, newest first")


@st.fragment(run_every=CHARTS_S)
def charts(run: RunDir) -> None:
    """The measurements over a chosen window."""
    heading("Measurements")
    window_s = pick_window()
    try:
        until = window_end(run, read_status(run, time.time()))
        lines, since = read_window(run, "engine_samples", engine.FIELDS, until - window_s, until)
        marks = read_marks(run, since, until)
    except (RunDirError, ConfigError) as error:
        cannot("The measurements cannot be read", error)
        return
    figures = engine.engine_figures(lines, marks, since=since, until=until, zone=zone(), dark=dark())
    if not figures:
        st.text("Nothing was measured in this time: measurements begin once a replica is ready.")
    with st.grid(columns=2, min_column_width=330):
        for field, figure in figures.items():
            draw(figure, key=f"engine-{field}")


def commands(run: RunDir) -> None:
    """How each replica was started."""
    try:
        replicas = read_status(run, time.time()).replicas
    except (RunDirError, ConfigError):
        return  # the head says why
    told = [(r.name, line) for r in replicas if (line := engine.command_line(r)) is not None]
    if told:
        heading("Command", "As it was started; its API key is in a file that only its owner may read")
    for name, line in told:
        with st.expander(f"Replica {name}", expanded=len(told) == 1):
            st.code(line, language=None, wrap_lines=True)


run = picked_run()
if run is None:
    no_run()
else:
    head(run)
    draw_sweep(run)
    charts(run)
    commands(run)
    draw_logs(run)
