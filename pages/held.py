"""What a quality guard found in a dataset that is held: what going on means, and its worst samples as plain text."""

from __future__ import annotations

import streamlit as st

from backend.holds import Hold, words_after
from backend.records import DatasetState
from backend.report.formatting import plain, plural
from backend.report.holds import read_example, read_hold
from backend.report.samples import Sample
from backend.report.views import DatasetView
from backend.run_dir import RunDir, RunDirError
from pages.nothing import cannot
from pages.tables import caption, heading

LONGEST = 1_200  # characters of a text; the page shows samples whole further down
HEIGHT_PX = 150


def draw_hold(run: RunDir, dataset: DatasetView) -> None:
    """Nothing where the dataset is not held. Raises RunDirError."""
    if dataset.state is not DatasetState.HELD:
        return
    hold = read_hold(run, dataset.name)
    if hold is None:
        return
    st.text(
        "Held by its quality guard: nothing more of it is asked for, requests in flight finish, other datasets go on.\n"
        f"Go on anyway: {words_after(hold)} Kill: what is finished stays."
    )
    samples = _samples(run, dataset.name, hold)
    if not samples:
        return
    heading(f"The {plural(len(samples), 'worst sample', 'worst samples')}", "of those that had finished when it was held")
    for column, (what, sample) in zip(st.columns(len(samples)), samples, strict=True):
        with column:
            _draw(what, sample)


def _samples(run: RunDir, dataset: str, hold: Hold) -> list[tuple[str, Sample]]:
    """Read once: what was found does not change, and this part of the page is drawn every few seconds."""
    place = f"held/{run.root}/{dataset}/{hold.at}"
    if place not in st.session_state:
        try:
            found = [(one.what, read_example(run, dataset, one)) for one in hold.examples]
        except RunDirError as error:
            cannot("The worst samples cannot be read", error)
            return []
        st.session_state[place] = [(what, sample) for what, sample in found if sample is not None]
    samples: list[tuple[str, Sample]] = st.session_state[place]
    return samples


def _draw(what: str, sample: Sample) -> None:
    caption(f"{what}: {plural(sample.row.completion_tokens, 'token')}, sample {sample.row.sample_id[:60]}")
    if sample.prompt:
        _text("Prompt", sample.prompt[-1].text)
    if sample.row.error is not None:
        _text("Error", sample.row.error)
    elif sample.reasoning and sample.reasoning.strip():
        _text("Reasoning", sample.reasoning, end=True)
    if sample.row.error is None:
        _text("Answer", sample.answer, end=True)


def _text(name: str, text: str, *, end: bool = False) -> None:
    """`end`: the end of a long text is shown, where a loop is."""
    if not text.strip():
        caption(f"{name}: nothing")
        return
    cut = len(text) > LONGEST
    caption(f"{name}, the {'last' if end else 'first'} {LONGEST:,} of {len(text):,} characters" if cut else name)
    shown = text[-LONGEST:] if end else text[:LONGEST]
    st.code(plain(shown, keep="\n\t"), language=None, wrap_lines=True, height=HEIGHT_PX if len(shown) > 200 else "content")
