"""What a dataset's files hold, before the run exists: how many prompts, and the first ones as they will be sent."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import streamlit as st

from backend.config import ConfigError, DatasetConfig, RunConfig
from backend.control import ControlError
from backend.control.draft import DatasetLook, look_at, stamp
from backend.control.rendered_prompt import render
from backend.prompts import BadLine
from backend.records import Prompt
from backend.report.formatting import plain, plural, size
from pages.tables import shown

LONGEST = 6_000  # characters of a message


@st.cache_data(max_entries=64, show_spinner="Counting prompts…")
def seen(dataset: DatasetConfig, base: str, files: Sequence[tuple[str, int, int]]) -> DatasetLook:
    """A look that is taken again when a file has changed."""
    return look_at(dataset, Path(base))


def draw_look(settings: RunConfig | None, dataset: DatasetConfig, base: Path, *, key: str) -> None:
    """The count, and on demand the first prompts."""
    look = seen(dataset, str(base), stamp(dataset, base))
    if look.fault is not None:
        st.html(f'<div class="hw-failed" style="font-size:12.5px">{shown(look.fault)}</div>')
        return
    count = plural(look.prompts, "prompt") if look.prompts is not None else "Too large to be counted here"
    st.text(f"{count} in {plural(look.files, 'file')}, {size(look.bytes)}.")
    with st.expander("The first prompts as they will be sent", key=f"look-{key}"):
        for i, prompt in enumerate(look.first):
            if isinstance(prompt, BadLine):
                _small(f"{i + 1} · {prompt.file}, line {prompt.line}: {prompt.reason}. It will be passed over.")
            else:
                _draw_prompt(i + 1, prompt)
                if settings is not None and settings.engine.urls:
                    _draw_rendered(settings, dataset, prompt, key=f"{key}-{i}")
        _small(_template_words(settings, dataset))


def _draw_prompt(number: int, prompt: Prompt) -> None:
    tools = f" · {plural(len(prompt.tools), 'tool')}" if prompt.tools else ""
    for i, message in enumerate(prompt.messages):
        _small(f"{f'{number} · {prompt.sample_id}{tools} · ' if i == 0 else ''}{message.get('role', '?')}")
        st.code(_words(message.get("content")), language=None, wrap_lines=True)


def _small(words: str) -> None:
    st.html(f'<div class="hw-dim" style="font-size:12.5px">{shown(words)}</div>')


def _draw_rendered(settings: RunConfig, dataset: DatasetConfig, prompt: Prompt, *, key: str) -> None:
    """The server's own rendering: it makes one token for it."""
    if not st.button("As the server renders it", key=f"render-{key}", help="Asks the first address; it makes one token"):
        return
    try:
        text = render(settings, dataset, prompt)
    except (ControlError, ConfigError) as error:
        st.text(str(error))
    else:
        st.code(plain(text[:LONGEST]), language=None, wrap_lines=True)


def _template_words(settings: RunConfig | None, dataset: DatasetConfig) -> str:
    if settings is None:
        return "The server puts the messages into the model's chat template."
    asked = settings.sampling_for(dataset).chat_template_kwargs
    with_what = f", with {json.dumps(asked)}" if asked else ""
    return f"The server puts the messages into the model's chat template{with_what}."


def _words(content: Any) -> str:
    text = content if isinstance(content, str) else json.dumps(content, ensure_ascii=True, indent=1)
    safe = plain(text)
    return safe if len(safe) <= LONGEST else f"{safe[:LONGEST]}… ({len(safe) - LONGEST:,} more characters)"
