"""Recent samples, one at a time, as plain text: prompt, reasoning and answer apart. Nothing in them is ever interpreted."""

from __future__ import annotations

import streamlit as st

from backend.records import Outcome
from backend.report.formatting import DASH, duration, moment, number, plain
from backend.report.samples import Sample, SampleLine, read_sample, recent_samples
from backend.run_dir import RunDir, RunDirError
from pages.clock import local
from pages.nothing import cannot
from pages.tables import Column, Moment, caption, draw_table, heading

KEPT = 50  # so many can be stepped through; they stay the same ones while new samples finish
LONGEST = 20_000  # characters of a text that are shown
SHORT = 1_500  # characters of a text that is shown without a scroll bar of its own
LONG_PX = 340


@st.fragment
def draw_samples(run: RunDir, dataset: str) -> None:
    """The newest samples with Previous and Next; read when the page is opened or when asked."""
    heading("Recent samples", "newest first, as plain text")
    with st.container(horizontal=True, vertical_alignment="bottom"):
        chosen = st.selectbox("Outcome", ["all", *Outcome], format_func=_outcome_word, key="sample_outcome", width=200)
        place = f"samples/{run.root}/{dataset}/{chosen}"
        if st.button("Read the newest", key="samples-newest"):
            st.session_state.pop(place, None)
        try:
            lines = _lines(place, run, dataset, None if chosen == "all" else Outcome(chosen))
            if not lines:
                st.text("None yet.")
                return
            at = _step(f"{place}/at", len(lines))
            sample = read_sample(run, dataset, lines[at])
        except RunDirError as error:
            cannot("The samples cannot be read", error)
            return
    if sample is None:
        st.text("This sample is no longer there: it was given up, or another ledger took the place of the one it was in.")
    else:
        _draw(sample, lines[at])


def _lines(place: str, run: RunDir, dataset: str, outcome: Outcome | None) -> list[SampleLine]:
    if not st.session_state.get(place):
        st.session_state[place] = recent_samples(run, dataset, limit=KEPT, outcome=outcome)
        st.session_state[f"{place}/at"] = 0
    lines: list[SampleLine] = st.session_state[place]
    return lines


def _step(key: str, count: int) -> int:
    def step(by: int) -> None:
        st.session_state[key] += by

    at = min(st.session_state.get(key, 0), count - 1)
    st.session_state[key] = at
    st.button("Newer", key="sample-newer", on_click=step, args=(-1,), disabled=at == 0)
    st.button("Older", key="sample-older", on_click=step, args=(1,), disabled=at == count - 1)
    st.text(f"{at + 1} of {count}")
    return at


def _draw(sample: Sample, line: SampleLine) -> None:
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
        _text("Reasoning", sample.reasoning)
    if row.error is None:
        _text("Answer", sample.answer)
    if row.tool_calls is not None:
        _text("Tool calls", row.tool_calls)
    caption(f"Finished {local(line.finished_at)}, {moment(line.finished_at)}; turn {row.turn + 1}, attempt {row.attempt}")


def _text(name: str, text: str) -> None:
    cut = "" if len(text) <= LONGEST else f", the first {LONGEST:,} of {len(text):,} characters"
    caption(f"{name[:100]}{cut}")
    height = "content" if len(text) < SHORT else LONG_PX
    st.code(plain(text[:LONGEST], keep="\n\t") or DASH, language=None, wrap_lines=True, height=height)


def _outcome_word(name: str) -> str:
    return name.replace("_", " ")
