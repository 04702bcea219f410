"""The sentence with which a page begins: the answer in words."""

from __future__ import annotations

import streamlit as st

from pages.tables import shown


def headline(sentence: str) -> None:
    """Draws it; anybody's words in it are text."""
    st.html(f'<div class="hw-root"><h1 class="hw-headline">{shown(sentence)}</h1></div>')


def answer(words: str, behind: str = "") -> None:
    """The same with the answer itself in the accent, and what may stand plain behind it."""
    inner = f'<span class="hw-accent-text">{shown(words)}</span>{shown(behind)}'
    st.html(f'<div class="hw-root"><h1 class="hw-headline">{inner}</h1></div>')
