"""How the samples of a dataset turned out: each outcome with its share and what chance allows for, and what counts as what."""

from __future__ import annotations

import streamlit as st

from backend.report.formatting import DASH, compact, number
from backend.report.outcome_rates import LATELY, OutcomeRate, Rate, read_rates
from backend.report.outcome_words import DEFINITIONS, OUTCOME_WORDS, RULE_WORDS
from backend.run_dir import RunDir
from pages.tables import Bar, Cell, Column, draw_table, heading


def draw_outcomes(run: RunDir, name: str) -> None:
    """The table and, folded, the definitions. Raises RunDirError."""
    heading("Outcomes", "what the texts are worth; in brackets what 95 % of chance allows for")
    rates = read_rates(run, name)
    recent = max((rate.lately.of for rate in rates if rate.lately is not None), default=LATELY)
    columns = [
        Column("Outcome"), Column("Samples", right=True), Column("Share"), Column(f"Last {number(recent)}"),
        Column("Tokens", right=True), Column("Meaning"),
    ]  # fmt: skip
    draw_table(columns, [_row(rate) for rate in rates], label="Outcome")
    with st.expander("What counts as what"):
        rows = [[outcome.replace("_", " "), words] for outcome, words in DEFINITIONS.items()]
        draw_table([Column("Outcome"), Column("Counts when, the first that fits")], rows, label="What counts as what")
        st.caption(RULE_WORDS[0].upper() + RULE_WORDS[1:] + ".")


def _row(rate: OutcomeRate) -> list[Cell]:
    overall = rate.overall
    return [
        rate.name.replace("_", " "),
        number(overall.hits if overall else None),
        Bar(overall.share, _words(overall)) if overall else DASH,
        _words(rate.lately) if rate.lately else DASH,
        compact(rate.completion_tokens),
        OUTCOME_WORDS.get(rate.name, "nearly the same as answers before it"),
    ]


def _words(rate: Rate) -> str:
    return f"{_percent(rate.share)} ({_percent(rate.low)} – {_percent(rate.high)})"


def _percent(share: float) -> str:
    """Tenths where they tell something."""
    return f"{100 * share:.1f} %" if 0 < share < 0.1 or 0.9 < share < 1 else f"{100 * share:.0f} %"
