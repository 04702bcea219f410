"""Handing samples over: what to export, and how the exports that were started here go. Each is a process of its own."""

from __future__ import annotations

from pathlib import Path

import streamlit as st

from backend.records import Outcome
from backend.report.export.background import ExportTask, TaskState, cancel_export, exports_of, start_export
from backend.report.export.options import ExportError, ExportOptions, Flagged, Format
from backend.report.formatting import number, plain, share
from backend.run_dir import RunDir
from pages.clock import local
from pages.tables import caption, heading, said

REFRESH_S = 2
FORMATS = {
    Format.MESSAGES: "messages: OpenAI, for most trainers",
    Format.CONVERSATIONS: "conversations: SpecForge, speculators",
    Format.SHAREGPT: "sharegpt: from and value",
    Format.TEXT: "text: as the model saw it, special tokens included",
    Format.TOKEN_IDS: "token ids with a loss mask",
}
FLAGGED = {Flagged.LEAVE_OUT: "leave out", Flagged.KEEP: "keep", Flagged.ONLY: "only these"}
_TOLD = "export_told"


def draw_export(run: RunDir, datasets: list[str]) -> None:
    """The form, and below it what was started. `datasets` are the run's."""
    heading("Hand over", "finished samples as files to train on, with a card that says what they are")
    _form(run, datasets)
    _tasks(run)


@st.fragment
def _form(run: RunDir, datasets: list[str]) -> None:
    with st.grid(columns=3, min_column_width=240):
        form = st.selectbox("Format", list(Format), format_func=FORMATS.__getitem__, key="export_format")
        chosen = st.multiselect("Datasets", datasets, key="export_datasets", placeholder="all")
        outcomes = st.multiselect("Outcomes", list(Outcome), default=[Outcome.OK], format_func=_word, key="export_outcomes")
        holdout = st.number_input("Held out, % of the prompts", 0.0, 99.0, 2.0, key="export_holdout")
        flagged = st.selectbox("Flagged samples", list(Flagged), format_func=FLAGGED.__getitem__, key="export_flagged")
        files = st.selectbox("Files", ["JSONL", "Parquet"], key="export_files")
    to = st.text_input("Folder to make", str(run.exports / f"{run.name}-{form}"), key=f"export_to_{run.name}_{form}")
    with st.container(horizontal=True, vertical_alignment="center"):
        force = st.toggle("Replace an export that lies there", key="export_force")
        options = ExportOptions(
            form, Path(to), tuple(chosen), tuple(outcomes), holdout / 100, files == "Parquet", Flagged(flagged), force=force
        )
        st.button("Export", key="export-start", on_click=_start, args=(run, options), disabled=not outcomes or not to.strip())
    if told := st.session_state.pop(_TOLD, None):
        st.text(told)


def _start(run: RunDir, options: ExportOptions) -> None:
    try:
        start_export(run, options)
    except ExportError as error:
        st.session_state[_TOLD] = str(error)


@st.fragment(run_every=REFRESH_S)
def _tasks(run: RunDir) -> None:
    for task in exports_of(run):
        with st.container(key=f"export-{task.number}"):
            caption(f"{task.format} to {plain(str(task.to))}, started {local(task.started_at)}")
            if task.state is TaskState.RUNNING:
                _draw_running(run, task)
            else:
                said(plain(f"{task.state.capitalize()}. {task.words}"))


def _draw_running(run: RunDir, task: ExportTask) -> None:
    at = task.progress
    with st.container(horizontal=True, vertical_alignment="center"):
        if at is None or not at.total:
            st.text("Begins…")
        else:
            st.text(
                f"{share(at.done, at.total)}: {number(at.done)} of {number(at.total)} samples read, {number(at.written)} kept"
            )
        st.button("Cancel", key=f"export-cancel-{task.number}", on_click=cancel_export, args=(run, task.number))


def _word(outcome: Outcome) -> str:
    return outcome.replace("_", " ")
