"""The operator's frame: which run, and the table of contents. Every page runs through it."""

from __future__ import annotations

import streamlit as st

from pages.run_picker import pick_run

PAGES = {
    "This run": [
        ("overview.py", "Overview", "overview"),
        ("datasets.py", "Datasets", "datasets"),
        ("engine.py", "Engine", "engine"),
        ("gpus.py", "GPUs", "gpus"),
        ("events.py", "Events", "events"),
    ],
    "All runs": [("runs.py", "Runs", "runs"), ("new_run.py", "New run", "new-run")],
}

st.set_page_config(page_title="Headway", page_icon=":material/stacked_line_chart:", layout="wide")

page = st.navigation(
    {
        section: [st.Page(path, title=title, url_path=url, default=url == "overview") for path, title, url in pages]
        for section, pages in PAGES.items()
    }
)
pick_run()
page.run()
