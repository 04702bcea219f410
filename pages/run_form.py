"""The fields of the form for a new run. They keep what was typed, also while other pages are looked at."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import streamlit as st

from backend.control.draft_form import EMPTY_ROW, START, EngineChoice, Thinking
from backend.records import Json
from pages.tables import shown

CHOICES = {
    EngineChoice.LOCAL: "SGLang on this machine",
    EngineChoice.CONTAINER: "SGLang in a container",
    EngineChoice.ATTACHED: "Servers that run already",
    EngineChoice.CPU: "The real SGLang on the CPU, a tiny model",
    EngineChoice.SIMULATED: "A simulated box, no GPU",
}
ROWS = "new_rows"  # ids of the rows of datasets, in their order


def begin(form: Mapping[str, Any], rows: list[Json]) -> None:
    """Puts values into the fields; called before they are drawn."""
    for name, value in form.items():
        st.session_state[f"new_{name}"] = value
    st.session_state[ROWS] = []
    for row in rows or [dict(EMPTY_ROW)]:
        add_row(row)


def add_row(row: Mapping[str, Any] = EMPTY_ROW) -> None:
    """One more dataset."""
    number = st.session_state["new_row_count"] = st.session_state.get("new_row_count", 0) + 1
    st.session_state[ROWS] = [*st.session_state.get(ROWS, []), number]
    for name, value in row.items():
        st.session_state[f"new_{number}_{name}"] = value


def remove_row(number: int) -> None:
    """Takes a dataset out of the form."""
    st.session_state[ROWS] = [row for row in st.session_state[ROWS] if row != number]


def read_form() -> tuple[Json, list[Json]]:
    """What stands in the fields now, those that are not drawn included."""
    form = {name: _held(f"new_{name}", default) for name, default in START.items()}
    rows = [{name: _held(f"new_{n}_{name}", v) for name, v in EMPTY_ROW.items()} for n in st.session_state[ROWS]]
    return form, rows


def draw_model_and_engine(cpu_missing: str | None) -> None:
    """What answers, and how it is started."""
    with st.grid(columns=2, min_column_width=260):
        _text("name", "Name of the run", placeholder="math-2026-03")
        choice = st.selectbox(
            "Engine", list(CHOICES), key="new_engine", format_func=CHOICES.__getitem__, persist_state="session"
        )
        if choice is not EngineChoice.CPU:
            _text("model", "Model", placeholder="a folder, or a Hugging Face id")
            _text("served_name", "Name in requests", placeholder="as the server calls it")
        if choice is EngineChoice.LOCAL:
            _text("python", "Python that has sglang", placeholder="/opt/sglang/bin/python")
        if choice is EngineChoice.CONTAINER:
            _text("image", "Image", placeholder="lmsysorg/sglang:v0.5.23")
            _text("docker_args", "Further options of docker run", placeholder="-v /models:/models:ro --ipc host")
        if choice is EngineChoice.ATTACHED:
            _text("urls", "Addresses, commas between them", placeholder="http://127.0.0.1:30000")
            _text("api_key_env", "Variable that holds the key", placeholder="SGLANG_API_KEY")
            return
        if choice in (EngineChoice.LOCAL, EngineChoice.CONTAINER, EngineChoice.SIMULATED):
            _text("gpus", "GPUs, commas between them", placeholder="all that are visible")
            _number("replicas", "Replicas", min_value=1, max_value=64)
            _number("tp", "GPUs of a replica (tensor parallel)", min_value=1, max_value=64)
        if choice is EngineChoice.SIMULATED:
            _number("speed", "Times faster than a real one", min_value=0.1)
            _text("curve", "Throughput curve", placeholder="running:tokens/s, as 1:62,8:370,48:409")
    if choice is EngineChoice.CPU and cpu_missing:
        st.text(f"It is not installed: {cpu_missing}")
    _text(
        "args", "Further flags, in the server's own spelling", placeholder="--reasoning-parser qwen3 --mem-fraction-static 0.9"
    )
    _text("env_from", "Variables to hand on to the server", placeholder="HF_TOKEN")


def draw_generation() -> None:
    """What is asked of the model."""
    with st.grid(columns=3, min_column_width=200):
        _number("concurrency", "Requests in flight", min_value=1, max_value=20_000)
        _number("max_new_tokens", "New tokens at most", min_value=1, placeholder="the server's limit")
        options = list(Thinking)
        st.selectbox("Thinking", options, key="new_thinking", format_func=str, persist_state="session")
        _number("temperature", "Temperature", min_value=0.0, step=0.1, placeholder="the model's own")
        _number("top_p", "Top p", min_value=0.0, max_value=1.0, step=0.05, placeholder="the model's own")
        _number("top_k", "Top k", step=1, placeholder="the model's own")


def draw_row(number: int) -> None:
    """The fields of one dataset."""
    with st.grid(columns=2, min_column_width=240):
        _text(f"{number}_name", "Name", placeholder="B1-math")
        _text(f"{number}_path", "Prompt files", placeholder="/data/math/*.jsonl")
        _number(f"{number}_token_budget", "Completion tokens to make", min_value=1, placeholder="no budget")
        _number(f"{number}_max_samples", "Samples at most", min_value=1, placeholder="all prompts")
        _text(f"{number}_system_prompt", "System prompt, where a prompt has none", placeholder="none")
        st.selectbox("Turns of a conversation to make", ["last", "all"], key=f"new_{number}_turns", persist_state="session")


def draw_faults(faults: list[str]) -> None:
    """Each on a line; they hold what was typed."""
    lines = "".join(f"<div>{shown(fault)}</div>" for fault in faults)
    if lines:
        st.html(f'<div class="hw-failed" role="alert" style="font-size:12.5px;line-height:1.5">{lines}</div>')


def _text(name: str, label: str, **options: Any) -> None:
    st.text_input(label, key=f"new_{name}", persist_state="session", **options)


def _number(name: str, label: str, **options: Any) -> None:
    st.number_input(label, key=f"new_{name}", value=None, persist_state="session", **options)


def _held(key: str, default: Any) -> Any:
    value = st.session_state.get(key, default)
    return default if value is None and isinstance(default, str) else value


def rows_without_files() -> list[int]:
    """Rows of which nothing was filled in."""
    return [n for n in st.session_state[ROWS] if not (_held(f"new_{n}_path", "") or _held(f"new_{n}_name", ""))]
