"""The GPUs and the host: values of now, small multiples on one time axis, energy. What is not told is "–"."""

from __future__ import annotations

import time

import streamlit as st

from backend.config import ConfigError
from backend.report import gpus
from backend.report.formatting import number
from backend.report.series import read_energy_wh, read_events_of, read_lines, read_newest, read_window
from backend.report.status import read_status
from backend.run_dir import RunDir, RunDirError
from pages.charts import dark, draw
from pages.clock import zone
from pages.headline import headline
from pages.nothing import cannot, no_run
from pages.run_picker import picked_run
from pages.tables import Column, draw_table, heading
from pages.window import pick_window, window_end

NOW_S, CHARTS_S = 3, 60
COLUMNS = [
    Column("GPU"), Column("Busy", right=True), Column("Memory", right=True), Column("Power", right=True),
    Column("Temperature", right=True), Column("Clock", right=True), Column("ECC errors", right=True), Column("Slowed by"),
]  # fmt: skip


@st.fragment(run_every=NOW_S)
def present(run: RunDir) -> None:
    """A row a GPU."""
    try:
        rows = gpus.gpu_rows(read_newest(run, "gpu_samples", time.time()))
        why = read_events_of(run, "gpu.%", 3)
    except RunDirError as error:
        cannot("The GPUs' values cannot be read", error)
        return
    headline(gpus.gpus_sentence(rows))
    if rows:
        draw_table(COLUMNS, [cells(row) for row in rows], label="GPUs now")
        return
    for message in dict.fromkeys(event.message for event in why):  # each life of the supervisor says it
        st.text(message)
    if not why:
        st.text("They are measured while the run's supervisor works, unless telemetry.gpu is off in its configuration.")


def cells(row: gpus.GpuRow) -> list[str]:
    """One row's figures with their units; "12 of 80 GiB"."""
    return [
        row.name, with_unit(row.utilization_percent, "%"), with_unit(row.memory_used_gib, "GiB", row.memory_total_gib),
        with_unit(row.power_w, "W", row.power_limit_w), with_unit(row.temperature_c, "°C"), with_unit(row.sm_clock_mhz, "MHz"),
        number(row.ecc_errors), row.throttling,
    ]  # fmt: skip


def with_unit(value: float | None, unit: str, whole: float | None = None) -> str:
    """(81.2, "GiB", 96) → "81 of 96 GiB"."""
    of = f" of {number(whole)}" if value is not None and whole is not None else ""
    return f"{number(value)}{of} {unit}" if value is not None else number(None)


@st.fragment(run_every=CHARTS_S)
def charts(run: RunDir) -> None:
    """GPUs and host over a chosen window."""
    try:
        view = read_status(run, time.time())
        until = window_end(run, view)
        energy = gpus.energy_words(read_energy_wh(run), view.totals.completion_tokens)
        heading("Over time", energy)
        window_s = pick_window()
        host, since = read_window(run, "host_samples", gpus.HOST_FIELDS, until - window_s, until)
        lines = read_lines(run, "gpu_samples", gpus.FIELDS, since, until)
    except (RunDirError, ConfigError) as error:
        cannot("The measurements cannot be read", error)
        return
    shape = {"since": since, "until": until, "zone": zone(), "dark": dark()}
    figures = gpus.gpu_figures(lines, **shape)
    if figures:
        with st.grid(columns=5, min_column_width=190):
            for i, figure in enumerate(figures):
                draw(figure, key=f"gpus-{i}")
    heading("Machine")
    of_host = gpus.host_figures(host, **shape)
    if not of_host:
        st.text("Nothing was measured in this time: the machine is measured while the run's supervisor works.")
    with st.grid(columns=3, min_column_width=300):
        for i, figure in enumerate(of_host):
            draw(figure, key=f"host-{i}")


run = picked_run()
if run is None:
    no_run()
else:
    present(run)
    charts(run)
