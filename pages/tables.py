"""Tables and rows of figures as HTML of our own: every text in them is escaped here, whoever wrote it.

Streamlit's own tables are for what is sorted and copied; these wrap long words, carry signs and colours, and turn into blocks
on a narrow screen. How they look stands in tables.css.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from typing import Final
from urllib.parse import urlencode

import streamlit as st

from backend.report.formatting import plain
from pages.clock import time_html
from pages.states import Look, state_html

LONGEST: Final = 4_000  # characters of a cell
SHORT: Final = 20  # characters


@dataclass(frozen=True, slots=True)
class Column:
    """One column's head."""

    name: str
    right: bool = False  # numbers


@dataclass(frozen=True, slots=True)
class Moment:
    """A cell that is a time: in the viewer's zone, UTC on hover."""

    at: float | None
    words: str | None = None  # in its place, such as "3 min ago"


@dataclass(frozen=True, slots=True)
class RunLink:
    """A cell that leads to a run's overview."""

    run: str


@dataclass(frozen=True, slots=True)
class Bar:
    """A cell that is a share, 0..1, drawn and in words."""

    share: float | None
    words: str


@dataclass(frozen=True, slots=True)
class Figure:
    """One large number with its unit, and a line that says against what."""

    name: str
    value: str
    unit: str = ""
    context: str = ""


Cell = str | Look | Moment | RunLink | Bar


def draw_table(columns: Sequence[Column], rows: Sequence[Sequence[Cell]], *, label: str) -> None:
    """A table; `label` says to a screen reader what it holds."""
    heads = "".join(f"<th{_right(c)}>{escape(c.name)}</th>" for c in columns)
    body = "".join(f"<tr>{''.join(map(_cell_html, columns, row))}</tr>" for row in rows)
    table = f'<table class="hw-table" aria-label="{escape(label)}"><thead><tr>{heads}</tr></thead><tbody>{body}</tbody></table>'
    st.html(f'<div class="hw-sheet">{table}</div>')


def draw_figures(figures: Sequence[Figure]) -> None:
    """Large numbers side by side, two by two on a narrow screen."""
    cells = "".join(
        f'<div class="hw-fact"><div class="hw-fact-name">{shown(f.name)}</div>'
        f'<div class="hw-fact-value">{shown(f.value)} <span class="hw-fact-unit">{shown(f.unit)}</span></div>'
        f'<div class="hw-fact-context">{shown(f.context)}</div></div>'
        for f in figures
    )
    st.html(f'<div class="hw-facts">{cells}</div>')


def heading(words: str, context: str = "") -> None:
    """The head of a part of a page, and one dim line below it."""
    below = f'<div class="hw-fact-context">{shown(context)}</div>' if context else ""
    st.html(f'<h2 class="hw-heading">{shown(words)}</h2>{below}')


def caption(words: str) -> None:
    """One dim line, such as what the text below it is."""
    st.html(f'<div class="hw-fact-name">{shown(words)}</div>')


def said(words: str) -> None:
    """Somebody's words, of any length, on lines of their own."""
    st.html(f'<div class="hw-said">{shown(words)}</div>')


def shown(text: str) -> str:
    """Anybody's text for `st.html`: tags are text; control characters and changes of direction are spelled out."""
    cut = text if len(text) <= LONGEST else f"{text[:LONGEST]}… ({len(text) - LONGEST:,} more characters)"
    return escape(plain(cut))


def _cell_html(column: Column, cell: Cell) -> str:
    match cell:
        case Look():
            inner = state_html(cell)
        case Moment():
            inner = time_html(cell.at, cell.words)
        case RunLink():
            address = escape(f"./?{urlencode({'run': cell.run}, errors='replace')}")
            inner = f'<a href="{address}" target="_self">{shown(cell.run)}</a>'
        case Bar():
            filled = f'<span style="width:{100 * cell.share:.1f}%"></span>' if cell.share is not None else ""
            inner = (
                f'<span class="hw-words"><span class="hw-share" aria-hidden="true">{filled}</span>{shown(cell.words)}</span>'
            )
        case _:
            # a name or a word is not broken where its column would shrink for a longer one
            inner = f'<span class="hw-words">{shown(cell)}</span>' if len(cell) <= SHORT and "\n" not in cell else shown(cell)
    return f'<td data-name="{escape(column.name)}"{_right(column)}><div>{inner}</div></td>'


def _right(column: Column) -> str:
    return ' class="hw-right"' if column.right else ""
