"""The ways in which a run could end sooner, as rows to press, and the question that leads to them."""

from __future__ import annotations

from html import escape

import streamlit as st

from backend.forecasts import Basis
from backend.report.end_words import length_words
from backend.report.ending import Ending
from backend.report.faster_way import ASKED, Question, option_end
from backend.report.formatting import plain
from backend.report.options import Option, ranked
from backend.run_dir import RunDir
from pages.apply import apply_button
from pages.clock import zone

HEAD = ("Option", "Done", "Sooner by", "Price in data")


def options_of(run: RunDir, basis: Basis, replicas: int, deadline: float | None) -> tuple[Option, ...]:
    """The ranked options, reckoned once for each forecast."""
    in_s = None if deadline is None else deadline - basis.at
    return _ranked(str(run.root), basis.at, replicas, in_s, basis)


@st.cache_data(max_entries=64, show_spinner=False)
def _ranked(root: str, at: float, replicas: int, deadline_in_s: float | None, _basis: Basis) -> tuple[Option, ...]:
    """`root` and `at` name the basis, which cannot be hashed."""
    return ranked(_basis, replicas=replicas, deadline_in_s=deadline_in_s)


def draw_question(asked: Question, words: str = "") -> None:
    """Why it is asked, and what is said to it. Anybody's words in it are text."""
    said = f" {escape(plain(words))}" if words else ""
    st.html(f'<div class="hw-root"><p><b>{ASKED}</b> {escape(plain(asked.why))}{said}</p></div>')


def draw_options(run: RunDir, options: tuple[Option, ...], end: Ending, replicas: int, now: float) -> None:
    """A row an option, the soonest first, each with the button that makes it so."""
    present = next((option for option in options if not option.changes_anything), None)
    with st.container(key="hw-options"):
        cells = "".join(f"<span>{word}</span>" for word in HEAD)
        st.html(f'<div class="hw-row hw-option hw-head" aria-hidden="true">{cells}</div>')
        for i, option in enumerate(options):
            with st.container(key=f"hw-row-option-{i}", horizontal=True, vertical_alignment="center"):
                st.html(_row(option, present, end, now))
                if option.changes_anything:
                    with st.container(key=f"hw-do-option-{i}", horizontal=True, horizontal_alignment="right", width=148):
                        apply_button(run, option.name, option.changes, replicas, place=f"option-{i}")


def _row(option: Option, present: Option | None, end: Ending, now: float) -> str:
    sooner = present.remaining.p50 - option.remaining.p50 if present is not None else 0.0
    words = option_end(option, end, now, zone()).removeprefix("done ")
    makes = {True: ' <span class="hw-done">✓ in time</span>', False: ' <span class="hw-dim">too late</span>', None: ""}
    return (
        f'<div class="hw-row hw-option" role="group" aria-label="{escape(plain(option.name))}">'
        f'<span class="hw-name">{escape(plain(option.name))}</span>'
        f"<span>{escape(words[0].upper() + words[1:])}{makes[option.makes_it]}</span>"
        f'<span><span class="hw-key">sooner by </span>{escape(length_words(sooner)) if sooner > 0 else "–"}</span>'
        f"<span>{escape(plain('; '.join(option.prices)))}</span></div>"
    )
