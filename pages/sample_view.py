"""One sample as plain text: prompt, reasoning and answer apart, with their tokens. Nothing in them is ever interpreted."""

from __future__ import annotations

from collections.abc import Sequence

import streamlit as st

from backend.report.formatting import DASH, duration, moment, number, plain, plural
from backend.report.samples import Sample, SampleLine
from pages.clock import local
from pages.tables import Column, Moment, caption, draw_table

LONGEST = 20_000  # characters of a text that are shown
SHORT = 1_500  # characters of a text that is shown without a scroll bar of its own
LONG_PX = 340
MOST_IDS = 4_000


def step_through(key: str, count: int, *, back: str, on: str, name: str) -> int:
    """Two buttons that step through `count` things; which one it is now, from 0. `key` keeps it in the session."""

    def step(by: int) -> None:
        st.session_state[key] += by

    at = min(st.session_state.get(key, 0), count - 1)
    st.session_state[key] = at
    st.button(back, key=f"{name}-{back.lower()}", on_click=step, args=(-1,), disabled=at == 0)
    st.button(on, key=f"{name}-{on.lower()}", on_click=step, args=(1,), disabled=at == count - 1)
    st.text(f"{at + 1:,} of {count:,}")
    return at


def draw_sample(sample: Sample, line: SampleLine, *, ids: bool = False) -> None:
    """Its figures and texts; with `ids` its token ids as well."""
    row = sample.row
    tokens = number(row.completion_tokens) + (" (estimated)" if row.tokens_estimated else "")
    columns = ["Sample", "Outcome", "Ended by", "Prompt tokens", "Completion tokens", "Reasoning tokens", "Took", "Finished"]
    cells = [row.sample_id, sample.outcome.replace("_", " "), row.finish_reason, number(row.prompt_tokens), tokens]
    cells += [number(sample.reasoning_tokens), duration(line.finished_at - line.started_at)]
    heads = [Column(name, right="tokens" in name) for name in columns]
    draw_table(heads, [[*cells, Moment(line.finished_at)]], label="Sample")
    for said in sample.prompt:
        _text(f"Prompt, {said.role}", said.text)
    if row.error is not None:
        _text("Error", row.error)
    if sample.reasoning is not None:
        _text(_with_tokens("Reasoning", sample.reasoning_tokens), sample.reasoning)
    if row.error is None:
        _text(_with_tokens("Answer", row.facts.answer_tokens), sample.answer)
    if row.tool_calls is not None:
        _text("Tool calls", row.tool_calls)
    if ids:
        _ids("Prompt token ids", row.prompt_token_ids)
        _ids("Output token ids", row.output_ids)
    caption(f"Finished {local(line.finished_at)}, {moment(line.finished_at)}; turn {row.turn}, attempt {row.attempt}")


def _text(name: str, text: str) -> None:
    cut = "" if len(text) <= LONGEST else f", the first {LONGEST:,} of {len(text):,} characters"
    caption(f"{name[:100]}{cut}")
    height = "content" if len(text) < SHORT else LONG_PX
    st.code(plain(text[:LONGEST], keep="\n\t") or DASH, language=None, wrap_lines=True, height=height)


def _ids(name: str, ids: Sequence[int] | None) -> None:
    if ids is None:
        _text(f"{name}: not told by the server", "")
        return
    cut = f", the first {MOST_IDS:,}" if len(ids) > MOST_IDS else ""
    _text(f"{name}, {len(ids):,}{cut}", " ".join(map(str, ids[:MOST_IDS])))


def _with_tokens(name: str, tokens: int | None) -> str:
    return name if tokens is None else f"{name}, {plural(tokens, 'token')}"
