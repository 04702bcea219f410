"""One dataset in depth: state and limits, lengths so far, rate, how answers ended, errors, and recent samples as plain text."""

from __future__ import annotations

import time

import streamlit as st

from backend.config import ConfigError, load
from backend.report.database import skipped_shards
from backend.report.dataset import cap_tokens, is_early, read_lengths, read_pace, read_totals
from backend.report.dataset_charts import lengths_chart, pace_chart
from backend.report.events import last_event
from backend.report.formatting import plural
from backend.report.headline import dataset_headline
from backend.report.pending import read_pending, with_pending
from backend.report.status import read_status
from backend.report.views import DatasetView, RunView
from backend.run_dir import RunDir, RunDirError
from pages.buttons import dataset_buttons
from pages.charts import dark, draw
from pages.clock import local, zone
from pages.dataset_parts import draw_ends, draw_head, draw_refusals, draw_state
from pages.dataset_picker import pick_dataset
from pages.export_part import draw_export
from pages.headline import headline
from pages.held import draw_hold
from pages.nothing import cannot, no_run
from pages.pressing import tell_answers
from pages.run_picker import picked_run
from pages.sample_reader import draw_samples
from pages.tables import heading

HEAD_S = 5
CHARTS_S = 60


def read_view(run: RunDir) -> RunView:
    """The run as it is now, with what was just asked of it."""
    view = read_status(run, time.time())
    return with_pending(view, read_pending(run, view.supervisor.heartbeat_at))


@st.fragment(run_every=HEAD_S)
def head(run: RunDir, name: str) -> None:
    """The sentence, state, limits and buttons."""
    try:
        view = read_view(run)
        dataset = next(d for d in view.datasets if d.name == name)
        bad = last_event(run, "dataset.bad_lines", f"dataset:{name}")
        headline(dataset_headline(view, dataset))
        with st.container(horizontal=True, vertical_alignment="center"):
            draw_state(view, dataset)
            dataset_buttons(run, view, dataset, place="depth")
        tell_answers(run)
        draw_head(view, dataset, bad)
        draw_hold(run, dataset)
    except (ConfigError, RunDirError) as error:
        cannot("The state of the dataset cannot be told", error)


@st.fragment(run_every=CHARTS_S)
def depth(run: RunDir, name: str) -> None:
    """What the finished samples say. Redrawn once a minute, or when asked."""
    now = time.time()
    try:
        dataset = next(d for d in read_view(run).datasets if d.name == name)
        totals = read_totals(run, name)
        with st.container(horizontal=True, vertical_alignment="bottom", horizontal_alignment="distribute"):
            heading("Finished so far", f"as of {local(now)}, read again each minute")
            st.button("Read again", key="depth-again")
        for sentence in skipped_shards(run):
            st.text(sentence)
        if not totals.samples:
            st.text("No sample of this dataset is finished yet. Lengths, rate and samples stand here as soon as some are.")
            return
        draw_depth(run, dataset, now)
    except (ConfigError, RunDirError) as error:
        cannot("The finished samples cannot be read", error)


def draw_depth(run: RunDir, dataset: DatasetView, now: float) -> None:
    """Charts and tables over all finished samples."""
    name, totals = dataset.name, read_totals(run, dataset.name)
    lengths, pace, cap = read_lengths(run, name), read_pace(run, name, totals, now), cap_tokens(load(run.config), name)
    left, right = st.columns(2)
    with left:
        if lengths.counts:
            draw(lengths_chart(lengths, cap, dark=dark()), key="lengths")
        if is_early(totals, dataset.in_flight):
            st.text(
                f"{plural(dataset.in_flight or 0, 'request')} in flight: early finishers are short, so these lengths are too."
            )
    with right:
        if len(pace.at) > 1:
            draw(pace_chart(pace, now=now, zone=zone(), dark=dark()), key="pace")
        else:
            st.text("Tokens an hour stand here once two minutes of answers are over.")
    draw_ends(run, name)
    draw_refusals(run, name)


run = picked_run()
if run is None:
    no_run()
else:
    try:
        names = [d.name for d in load(run.config).datasets]
    except ConfigError as error:
        cannot("The run cannot be read", error)
    else:
        name = pick_dataset(names)
        head(run, name)
        depth(run, name)
        draw_samples(run, name)
        draw_export(run, names)
