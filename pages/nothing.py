"""What a page says where there is nothing to show yet, and what to do about it."""

from __future__ import annotations

import streamlit as st

from backend.run_dir import RunDirError
from backend.runs import list_runs, runs_folder


def no_run() -> None:
    """There is no run at all, or none that can be seen: then why."""
    try:
        list_runs(runs_folder())
    except RunDirError as error:
        cannot("The runs cannot be listed", error)
        return
    st.text(f"There is no run in {runs_folder()} yet.")
    st.text("Create one on the page New run, or run `make demo` in a terminal: it needs no GPU.")


def cannot(what: str, error: Exception) -> None:
    """Something of the run could not be read; the error is a sentence of ours about files that anybody named."""
    st.text(f"{what}: {error}")
