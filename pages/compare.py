"""Compare: the rest of the run here against each API: time, cost, what limits it, and what no price shows."""

from __future__ import annotations

import time

import streamlit as st

from backend.config import ConfigError
from backend.report.compare import CompareView, compare_view
from backend.report.compare_chart import compare_chart
from backend.report.compare_options import Assumed, models_to_compare
from backend.report.compare_words import WAY_HEAD, compare_figures, compare_sentence, way_rows
from backend.run_dir import RunDir, RunDirError
from pages.api_buttons import draw_switch
from pages.charts import dark, draw
from pages.compare_parts import draw_notes, draw_one_api, draw_setup
from pages.headline import headline
from pages.nothing import cannot, no_run
from pages.run_picker import picked_run
from pages.tables import Column, Figure, caption, draw_figures, draw_table, heading

EVERY_S = 60
NUMBERS = {"Time", "Cost", "A million tokens", "Tokens/s", "Pays above"}
COLUMNS = [Column(name, right=name in NUMBERS) for name in WAY_HEAD]


@st.fragment(run_every=EVERY_S)
def compare(run: RunDir) -> None:
    """The page of one run."""
    answer = st.container()
    assumed, model = ask()
    try:
        view = compare_view(run, time.time(), assumed, model)
    except (RunDirError, ConfigError) as error:
        cannot("The comparison cannot be made", error)
        return
    with answer:
        headline(compare_sentence(view))
        figures = [Figure(f.label, f.value, f.of, f.note) for f in compare_figures(view)]
        if figures:
            draw_figures(figures)
    if view.comparison is None:
        draw_setup(view)
        return
    draw_ways(view)
    draw_one_api(run, view)
    draw_switch(run)
    draw_notes(view)
    draw_setup(view)


def ask() -> tuple[Assumed, str | None]:
    """What is taken for APIs that nobody measured, and whose list prices are shown."""
    usual = Assumed()
    with st.container(horizontal=True, vertical_alignment="bottom"):
        speed = st.number_input(
            "Tokens/s of one answer, assumed", 1.0, 10_000.0, usual.stream_tokens_per_s, 10.0, key="compare_speed", width=220
        )
        streams = st.number_input("Answers at once, assumed", 1, 20_000, usual.streams, 50, key="compare_streams", width=220)
        model = st.selectbox(
            "List prices of",
            ["", *models_to_compare()],
            key="compare_model",
            format_func=lambda m: m or "this run's model",
            width=260,
        )
    return Assumed(float(speed), int(streams)), model or None


def draw_ways(view: CompareView) -> None:
    """Chart and table of every way."""
    if not view.sold:
        caption(
            f"No list price is known for {view.model}: well-known open models stand in for it below. They are other models."
        )
    figure = compare_chart(view, dark=dark())
    if figure is not None:
        draw(figure, key="compare-chart")
    heading(
        "Every way to make the rest",
        "Ranges hold 8 times of 10. Whatever goes, what is in flight finishes here first",
    )
    draw_table(COLUMNS, way_rows(view), label="Ways to make the rest")


run = picked_run()
if run is None:
    no_run()
else:
    compare(run)
