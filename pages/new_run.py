"""New run: a form whose TOML is seen as it grows, with every fault beside it; what is typed stays."""

from __future__ import annotations

import os
from pathlib import Path

import streamlit as st

from backend.config import ConfigError, RunConfig
from backend.control import ControlError
from backend.control.create import create_from
from backend.control.draft import faults_of, machine_faults, read_settings, to_toml
from backend.control.draft_form import to_data
from backend.control.start import StartOutcome, start
from backend.engine_cpu.place import EnginePlace, engine_settings, missing_reason
from backend.prompts import PromptFileError
from backend.records import Json
from backend.run_dir import RunDirError
from backend.runs import runs_folder
from pages.file_finder import draw_finder
from pages.headline import headline
from pages.pressing import who
from pages.prompt_look import draw_look
from pages.run_form import ROWS, add_row, draw_faults, draw_generation, draw_model_and_engine, draw_row, read_form, remove_row
from pages.run_origin import begin_anew, draw_origin, rest
from pages.tables import caption, heading

_DONE = "new_done"  # what stands in the form was created: the next visit begins anew
CHECKOUT = Path(__file__).resolve().parents[1]
BASE = Path.cwd()  # where relative paths begin, as the form says


def draw_datasets(settings: RunConfig | None, faults: list[str]) -> None:
    """A dataset after the other: its fields, what is wrong with it, what its files hold."""
    numbers = st.session_state[ROWS]
    for i, number in enumerate(numbers):
        with st.container(border=True, key=f"hw-new-{number}"):
            draw_row(number)
            draw_faults([f for f in faults if f.startswith(f"datasets[{i}]")])
            dataset = settings.datasets[i] if settings is not None and i < len(settings.datasets) else None
            if dataset is not None:
                draw_look(settings, dataset, BASE, key=str(number))
            if len(numbers) > 1:
                st.button("Remove", key=f"new-remove-{number}", on_click=remove_row, args=(number,))
    st.button("Add a dataset", key="new-add", on_click=add_row)
    draw_finder(BASE)


def create_run(settings: RunConfig, *, and_start: bool) -> None:
    """Makes it, and leads to its Overview; why it cannot be made is told below the buttons."""
    try:
        with st.spinner("Reading the prompt files…"):
            run = create_from(settings, BASE, runs_folder())
        if and_start:
            with st.spinner("Starting…"):
                result = start(run, who())
            if result.outcome is StartOutcome.FAILED:
                st.session_state["told"] = f"{run.name} was created and could not be started. {result.reason}"
    except (ConfigError, ControlError, PromptFileError, RunDirError) as error:
        draw_faults(faults_of(ConfigError(str(error))))
        return
    st.session_state[_DONE] = True
    st.switch_page("overview.py", query_params={"run": run.name})


def draft() -> tuple[Json | None, RunConfig | None, list[str]]:
    """What the fields make: TOML's tables, the configuration if it can be used, and the faults."""
    form, rows = read_form()
    try:
        data = to_data(form, rows, rest(), engine_settings(CHECKOUT))
    except ConfigError as error:
        return None, None, faults_of(error)
    try:
        settings = read_settings(data)
    except ConfigError as error:
        return data, None, faults_of(error)
    return data, settings, machine_faults(settings, BASE, os.environ)


if ROWS not in st.session_state or st.session_state.pop(_DONE, False):
    begin_anew()
headline("A new run")
draw_origin()
data, settings, faults = draft()
untouched = data is not None and not data["name"] and not data["model"]["path"]  # what is not begun yet is not wrong
left, right = st.columns([3, 2], gap="medium")
with left:
    heading("Engine")
    draw_model_and_engine(missing_reason(EnginePlace(CHECKOUT)))
    heading("Generation", "A dataset may differ from it: write that into the TOML you start from")
    draw_generation()
    heading("Datasets", f"They run in this order; relative paths begin at {BASE}")
    draw_datasets(settings, [] if untouched else faults)
with right:
    heading("As it will be created", f"{runs_folder()}/<name>/run.toml")
    if untouched:
        caption("Give it a name, a model and a dataset with its prompt files; what is missing is told here.")
    else:
        draw_faults([f for f in faults if not f.startswith("datasets[")])
    with st.container(horizontal=True):
        pressed = st.button("Create and start", type="primary", key="new-start")
        created = st.button("Create", key="new-create")
    if pressed or created:
        if settings is None or faults:
            draw_faults(
                ["It is not created: first correct this.", *faults]
                if untouched
                else ["It is not created: first correct what is told in red."]
            )
        else:
            create_run(settings, and_start=pressed)
    if data is not None:
        st.code(to_toml(data), language=None, wrap_lines=True)
