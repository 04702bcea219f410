"""From what a new run begins: nothing, a run that is there, or TOML that is pasted. What the form does not show is kept."""

from __future__ import annotations

import streamlit as st

from backend.config import ConfigError
from backend.control.draft import from_toml
from backend.control.draft_form import START, from_data
from backend.records import Json
from backend.run_dir import RunDirError
from backend.runs import find_run, list_runs, runs_folder
from pages.run_form import begin

_REST = "new_rest"
_TOLD = "new_origin_told"


def rest() -> Json:
    """The tables that the form began with; the form's fields go on top."""
    held: Json = st.session_state.get(_REST, {})
    return held


def begin_anew() -> None:
    """An empty form."""
    st.session_state[_REST] = {}
    begin(START, [])


def draw_origin() -> None:
    """The choice, folded away: most begin with the form."""
    try:
        names = [run.name for run in list_runs(runs_folder())]
    except RunDirError as error:
        st.text(str(error))
        return
    with st.expander("Begin with a run that is there, or with TOML", key="new-origin"):
        with st.container(horizontal=True, vertical_alignment="bottom"):
            name = st.selectbox("Run", names, index=None, key="new_origin_run", placeholder="none", width=280)
            st.button("Begin with it", key="new-from-run", on_click=_from_run, args=(name,), disabled=name is None)
        st.text_area("TOML", key="new_origin_toml", height=160, persist_state="session")
        st.button("Begin with this TOML", key="new-from-toml", on_click=_from_typed)
        if told := st.session_state.pop(_TOLD, None):
            st.text(told)


def _from_run(name: str | None) -> None:
    if name is None:
        return
    try:
        text = find_run(name, runs_folder()).config.read_text()
    except (RunDirError, OSError, UnicodeDecodeError) as error:
        st.session_state[_TOLD] = f"{name} cannot be read: {error}"
        return
    _begin_with(text, f"{name}-2")


def _from_typed() -> None:
    _begin_with(st.session_state.get("new_origin_toml", ""), None)


def _begin_with(text: str, name: str | None) -> None:
    try:
        data = from_toml(text)
    except ConfigError as error:
        st.session_state[_TOLD] = str(error)
        return
    form, rows = from_data(data)
    st.session_state[_REST] = data
    begin(form | ({"name": name} if name else {}), rows)
