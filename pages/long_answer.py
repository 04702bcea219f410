"""A long question on a page: begun by a press, waited for with a way to cancel it, and kept until the next one."""

from __future__ import annotations

from collections.abc import Callable

import streamlit as st

from backend.report.formatting import plain
from backend.report.long_question import LongQuestion, Result
from backend.run_dir import RunDirError

QUICK_S = 1.0  # what is answered so soon is shown without a word about waiting
LOOK_S = 1.0


def begin(place: str, make: Callable[[], LongQuestion]) -> None:
    """Asks; what is still on its way at this `place` of the session is ended first."""
    forget(place)
    try:
        st.session_state[place] = make()
    except RunDirError as error:
        st.session_state[place] = str(error)


def forget(place: str) -> None:
    """Ends what is on its way there, and forgets its answer."""
    former = st.session_state.pop(place, None)
    if isinstance(former, LongQuestion):
        former.cancel()


def answer(place: str) -> Result | None:
    """The answer, once there is one. Until then, or where there is none, the reason is drawn."""
    question = st.session_state.get(place)
    if question is None:
        return None
    if isinstance(question, str):
        st.text(plain(question))
        return None
    if not question.wait(QUICK_S):
        _wait(place)
        return None
    try:
        result: Result = question.result()
    except RunDirError as error:
        st.text(plain(str(error)))  # DuckDB repeats the statement's words
        return None
    return result


@st.fragment(run_every=LOOK_S)
def _wait(place: str) -> None:
    question = st.session_state.get(place)
    if not isinstance(question, LongQuestion) or question.wait(0):
        st.rerun()
        return
    with st.container(horizontal=True, vertical_alignment="center"):
        st.text(f"Looking for {question.seconds():.0f} s; it is ended after {question.limit_s:.0f} s.")
        if st.button("Cancel", key=f"cancel-{place}"):
            question.cancel()
            st.rerun()
