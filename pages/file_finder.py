"""Finds prompt files by going through folders: names only, nothing is read."""

from __future__ import annotations

import os
from pathlib import Path

import streamlit as st

from backend.control import ControlError
from backend.control.draft import free_name, list_folder
from backend.control.draft_form import EMPTY_ROW
from backend.report.formatting import plain, plural
from pages.run_form import add_row, read_form, remove_row, rows_without_files

_FOLDER = "new_find_folder"


def draw_finder(base: Path) -> None:
    """A folder, the folders in it to go to, and its prompt files to add as datasets."""
    with st.expander("Find prompt files", key="new-find"):
        st.session_state.setdefault(_FOLDER, str(base))
        st.text_input("Folder", key=_FOLDER, persist_state="session")
        folder = Path(os.path.expanduser(st.session_state[_FOLDER] or base)).absolute()
        try:
            listing = list_folder(folder)
        except ControlError as error:
            st.text(plain(str(error)))
            return
        there = ["..", *listing.folders]
        st.selectbox("Go to", there, index=None, key="new_find_to", format_func=_shown, on_change=_go, args=(folder,))
        chosen = st.multiselect("Prompt files in it", listing.files, key="new_find_files", format_func=_shown)
        if not listing.files:
            st.text("No JSONL or Parquet file lies here.")
        if listing.left_out:
            st.text(f"{plural(listing.left_out, 'further name')} are not listed: type the path.")
        st.button("Add as datasets", key="new-find-add", on_click=_add, args=(folder, tuple(chosen)), disabled=not chosen)


def _go(folder: Path) -> None:
    chosen = st.session_state.get("new_find_to")
    if chosen is not None:
        st.session_state[_FOLDER] = str(folder.parent if chosen == ".." else folder / chosen)
        st.session_state["new_find_files"] = []
        st.session_state["new_find_to"] = None


def _add(folder: Path, names: tuple[str, ...]) -> None:
    for number in rows_without_files():
        remove_row(number)
    for name in names:
        taken = [row["name"] for row in read_form()[1]]
        add_row(EMPTY_ROW | {"name": free_name(name, taken), "path": str(folder / name)})
    st.session_state["new_find_files"] = []


def _shown(name: str) -> str:
    return plain(name, keep="")
