"""The ways in which a run could end sooner, as rows to press, and the question that leads to them."""

from __future__ import annotations

import time
from html import escape

import streamlit as st

from backend.config import ConfigError, RunConfig
from backend.forecasts import Basis
from backend.report.api_option import api_option, with_api
from backend.report.compare import compare_view
from backend.report.compare_options import Assumed
from backend.report.end_words import HOUR_S, length_words
from backend.report.ending import Ending
from backend.report.faster_way import ASKED, Question, option_end, question
from backend.report.formatting import plain
from backend.report.options import Option, ranked
from backend.run_dir import RunDir, RunDirError
from pages.apply import apply_button
from pages.clock import zone

HEAD = ("Option", "Done", "Sooner by", "Price in data")


def options_of(run: RunDir, basis: Basis, settings: RunConfig, deadline: float | None) -> tuple[Option, ...]:
    """The ranked options, reckoned once for each forecast; an API that run.toml names among them."""
    in_s, root = None if deadline is None else deadline - basis.at, str(run.root)
    found = _ranked(root, basis.at, settings.engine.replicas, in_s, basis)
    return with_api(found, api_offer(run, basis, settings), in_s)


def api_offer(run: RunDir, basis: Basis, settings: RunConfig) -> Option | None:
    """The fastest API of those that run.toml names; None where it names none, or nothing can be said."""
    return _offer(str(run.root), basis.at, run) if settings.api else None


@st.cache_data(max_entries=64, show_spinner=False)
def _ranked(root: str, at: float, replicas: int, deadline_in_s: float | None, _basis: Basis) -> tuple[Option, ...]:
    """`root` and `at` name the basis, which cannot be hashed."""
    return ranked(_basis, replicas=replicas, deadline_in_s=deadline_in_s)


@st.cache_data(max_entries=64, show_spinner=False)
def _offer(root: str, at: float, _run: RunDir) -> Option | None:
    try:
        return api_option(compare_view(_run, time.time(), Assumed()))
    except (RunDirError, ConfigError):
        return None  # the page Compare says why


def ask(run: RunDir, basis: Basis, settings: RunConfig, end: Ending, *, deadline: float | None, now: float) -> Question | None:
    """Whether there is a reason to ask for a faster way."""
    offer = api_offer(run, basis, settings)
    after_s = settings.forecast.ask_after_h * HOUR_S
    api_s = offer.remaining.p50 if offer is not None else None
    return question(end, deadline=deadline, ask_after_s=after_s, now=now, zone=zone(), api_s=api_s)


def draw_question(asked: Question, words: str = "") -> None:
    """Why it is asked, and what is said to it. Anybody's words in it are text."""
    said = f" {escape(plain(words))}" if words else ""
    st.html(f'<div class="hw-root"><p><b>{ASKED}</b> {escape(plain(asked.why))}{said}</p></div>')


def draw_options(run: RunDir, options: tuple[Option, ...], end: Ending, settings: RunConfig, now: float) -> None:
    """A row an option, the soonest first, each with the button that makes it so."""
    present = next((option for option in options if option.is_present), None)
    with st.container(key="hw-options"):
        cells = "".join(f"<span>{word}</span>" for word in HEAD)
        st.html(f'<div class="hw-row hw-option hw-head" aria-hidden="true">{cells}</div>')
        for i, option in enumerate(options):
            with st.container(key=f"hw-row-option-{i}", horizontal=True, vertical_alignment="center"):
                st.html(_row(option, present, end, now))
                if option.is_present:
                    continue
                with st.container(key=f"hw-do-option-{i}", horizontal=True, horizontal_alignment="right", width=148):
                    if option.changes is None:
                        st.page_link("compare.py", label="Compare", query_params={"run": run.name})
                    else:
                        apply_button(run, option.name, option.changes, settings.engine.replicas, place=f"option-{i}")
    if not any(option.changes is None for option in options):
        with st.container(key="hw-elsewhere", horizontal=True, vertical_alignment="center", gap="xsmall"):
            st.html('<div class="hw-fact-name">The rest could be sent to an API as well:</div>', width="content")
            st.page_link("compare.py", label="see Compare", query_params={"run": run.name})


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
