"""A press that writes down what is wanted: its token, its confirmation, and what became of it. The buttons are `buttons.py`'s.

One press acts once, however often it comes: a token is made from what was last wished of its subject, so a second click,
another tab or a rerun writes the same wish, which is one.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from getpass import getuser
from typing import Final

import streamlit as st

from backend.config import ConfigError
from backend.control import ControlError
from backend.control.intents import last_wish, read_answer
from backend.records import Intent
from backend.run_dir import RunDir, RunDirError

REFUSALS: Final = (ControlError, RunDirError, ConfigError)
_ASKED: Final = "asked"  # this tab's wishes that no supervisor has answered yet
_TOLD: Final = "told"  # what became of the last press, where that is not plain to see


def tell_answers(run: RunDir) -> None:
    """What was refused of this tab's wishes, or went wrong with a press; shown until the next press."""
    waiting = []
    for intent in st.session_state.get(_ASKED, []):
        try:
            answer = read_answer(run, intent)
        except RunDirError as error:
            st.session_state[_TOLD] = str(error)
            continue
        if answer is None:
            waiting.append(intent)
        elif not answer.accepted:
            st.session_state[_TOLD] = f"Refused: {answer.message}"
    st.session_state[_ASKED] = waiting[-20:]
    if told := st.session_state.get(_TOLD):
        with st.container(key="hw-told"):
            st.text(told)


def tell(words: str) -> None:
    """Something about the last press, shown until the next one."""
    st.session_state[_TOLD] = words


def who() -> str:
    """Who pressed, as far as it is known: the name that a proxy vouches for, else the user who runs the dashboard."""
    name = st.user.to_dict().get("name") or st.user.to_dict().get("email")
    if name:
        return f"page:{name}"
    try:
        return f"page:{getuser()}"
    except (KeyError, OSError):
        return "page"


def wish_of(run: RunDir, subject: str, want: str, place: str) -> tuple[str, str]:
    """A button's key and its token. Both change when something else was wished of the subject, and only then."""
    try:
        last = last_wish(run, subject)
    except RunDirError:
        last = "unread"  # what cannot be read now is said where the press is written
    token = hashlib.sha256("\n".join((run.name, subject, want, last)).encode()).hexdigest()[:32]
    key = "-".join(("press", place, subject.replace(":", "-"), want.partition(" ")[0], token[:8]))
    return key, token


def write_wish(wish: Callable[[str], Intent], token: str) -> None:
    """Writes a wish; why it could not be written is told on the page."""
    write_wishes([(wish, token)])


def write_wishes(wishes: Sequence[tuple[Callable[[str], Intent], str]]) -> None:
    """Writes wishes with their tokens, in this order; at the first that cannot be written it stops, and the page says why."""

    def act() -> None:
        for wish, token in wishes:
            st.session_state[_ASKED] = [*st.session_state.get(_ASKED, []), wish(token)]

    attempt(act)


def attempt(act: Callable[[], None]) -> None:
    """Does what a press asks; why it could not be done is told on the page."""
    st.session_state[_TOLD] = None
    try:
        act()
    except REFUSALS as error:
        st.session_state[_TOLD] = str(error)


def confirm(word: str, act: Callable[[], None], *, harmless: bool = False) -> None:
    """The end of a dialog: Cancel, and the button that acts; red unless it is `harmless`."""
    with st.container(horizontal=True, horizontal_alignment="right"):
        if st.button("Cancel", key="dialog-cancel"):
            st.rerun()
        if st.button(word, key="dialog-agree" if harmless else "dialog-confirm", type="primary", on_click=act):
            st.rerun()
