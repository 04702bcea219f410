"""What has been generated so far: distributions, samples to read, questions to ask, and SQL."""

from __future__ import annotations

import time

import streamlit as st

from backend.config import ConfigError, RunConfig, load
from backend.report.database import skipped_shards
from backend.report.formatting import compact, plural
from backend.report.status import read_status
from backend.run_dir import RunDir, RunDirError
from pages.data_charts import draw_charts
from pages.data_questions import draw_questions
from pages.data_samples import draw_browser
from pages.data_sql import draw_sql_box
from pages.headline import headline
from pages.nothing import cannot, no_run
from pages.run_picker import picked_run

PARTS = {"Charts": draw_charts, "Samples": draw_browser, "Questions": draw_questions, "SQL": draw_sql_box}


def draw_part(run: RunDir, settings: RunConfig) -> None:
    """How much there is, and the part that was chosen; the address names it."""
    totals = read_status(run, time.time(), counted=False, settings=settings).totals
    if totals.finished_samples is None:
        headline("How much is finished is not known.")
    else:
        headline(f"{plural(totals.finished_samples, 'sample')} finished, {compact(totals.completion_tokens)} tokens.")
    asked = st.query_params.get("part")
    if "data_part" not in st.session_state:
        st.session_state["data_part"] = asked if asked in PARTS else next(iter(PARTS))
    part = st.segmented_control(
        "Part", list(PARTS), key="data_part", required=True, label_visibility="collapsed", width="content"
    )
    st.query_params["part"] = part
    for sentence in skipped_shards(run):
        st.text(sentence)
    PARTS[part](run, [dataset.name for dataset in settings.datasets])


run = picked_run()
if run is None:
    no_run()
else:
    try:
        draw_part(run, load(run.config))
    except ConfigError as error:
        cannot("The run cannot be read", error)
    except RunDirError as error:
        cannot("The finished samples cannot be read", error)
