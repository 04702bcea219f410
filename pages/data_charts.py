"""The Data page's charts: lengths by dataset with their caps, outcomes over time, and whether lengths drift."""

from __future__ import annotations

import time

import streamlit as st

from backend.config import ConfigError, load
from backend.report.dataset import cap_tokens
from backend.report.distribution_charts import drift_chart, lengths_chart, outcomes_chart
from backend.report.distributions import read_lengths_by_dataset, read_spans
from backend.run_dir import RunDir, RunDirError
from pages.charts import dark, draw
from pages.clock import local, zone
from pages.nothing import cannot
from pages.tables import heading

CHARTS_S = 60
ALL = "all datasets"


@st.fragment(run_every=CHARTS_S)
def draw_charts(run: RunDir, datasets: list[str]) -> None:
    """Redrawn once a minute, or when asked."""
    with st.container(horizontal=True, vertical_alignment="bottom", horizontal_alignment="distribute"):
        heading("Finished so far", f"as of {local(time.time())}, read again each minute")
        st.button("Read again", key="data-again")
    try:
        _draw(run, datasets)
    except ConfigError as error:
        cannot("The run cannot be read", error)
    except RunDirError as error:
        cannot("The finished samples cannot be read", error)


def _draw(run: RunDir, datasets: list[str]) -> None:
    settings = load(run.config)
    caps = {name: cap_tokens(settings, name) for name in datasets}
    lengths = read_lengths_by_dataset(run, datasets)
    if lengths:
        draw(lengths_chart(lengths, caps, dark=dark()), key="data-lengths")
    chosen = st.selectbox("Over time", [ALL, *datasets], key="data_dataset", width=320) if len(datasets) > 1 else ALL
    one = None if chosen == ALL else chosen
    spans = read_spans(run, one)
    if not spans.at:
        st.text("No sample is finished yet. Lengths and outcomes stand here as soon as some are.")
        return
    scope = "All datasets" if one is None else one
    left, right = st.columns(2)
    with left:
        draw(outcomes_chart(spans, scope=scope, zone=zone(), dark=dark()), key="data-outcomes")
    with right:
        if any(value is not None for value in spans.p50_tokens):
            cap = None if one is None else caps[one]
            draw(drift_chart(spans, scope=scope, cap_tokens=cap, zone=zone(), dark=dark()), key="data-drift")
