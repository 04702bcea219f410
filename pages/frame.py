"""The operator's frame: which run, how it goes, and the table of contents. Every page runs through it."""

from __future__ import annotations

from pathlib import Path

import streamlit as st

from pages.live.component import live_part, style
from pages.run_picker import pick_run, picked_run
from pages.watch import draw_brand, watch

HERE = Path(__file__).parent
PAGES = {
    "This run": [
        ("overview.py", "Overview", "overview"),
        ("forecast.py", "Forecast", "forecast"),
        ("compare.py", "Compare", "compare"),
        ("datasets.py", "Datasets", "datasets"),
        ("data.py", "Data", "data"),
        ("engine.py", "Engine", "engine"),
        ("gpus.py", "GPUs", "gpus"),
        ("events.py", "Events", "events"),
    ],
    "All runs": [("runs.py", "Runs", "runs"), ("new_run.py", "New run", "new-run")],
}

st.set_page_config(page_title="Headway", page_icon=str(HERE / "icon.svg"), layout="wide", initial_sidebar_state=216)
style()

page = st.navigation(
    {
        section: [st.Page(path, title=title, url_path=url, default=url == "overview") for path, title, url in pages]
        for section, pages in PAGES.items()
    },
)
with st.sidebar:
    brand = st.empty()
pick_run()
run = picked_run()
with st.sidebar:
    draw_brand(brand, run)
    if run is not None:
        live_part("card", run.name)
if run is not None:
    watch(run)
page.run()
