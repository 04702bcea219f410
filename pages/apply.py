"""Makes a what-if true: says what changes, asks, and writes the wishes in their order. So does a deadline that is set here."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime

import streamlit as st

from backend.control.intents import parse_setting, want_dataset, want_setting
from backend.records import Intent
from backend.report.what_if import Changes, Wish, not_live, wishes
from backend.run_dir import RunDir
from pages.pressing import attempt, confirm, who, wish_of, write_wishes


def apply_button(run: RunDir, name: str, changes: Changes, replicas: int, *, place: str) -> None:
    """Asks before anything is written. `name` is the option's; `replicas` there are now."""
    nothing = not wishes(changes) and not_live(changes, replicas) is None
    if st.button("Apply…", key=f"apply-{place}", disabled=nothing, help=f"{name}: says what changes, and asks first"):
        _confirm_changes(run, changes, replicas)


@st.dialog("Change the run?")
def _confirm_changes(run: RunDir, changes: Changes, replicas: int) -> None:
    wanted = wishes(changes)
    if wanted:
        st.text("This will be so from now on:\n" + "\n".join(f"• {wish.words}" for wish in wanted))
        st.text("What is finished or in flight stays. Each of it can be changed again, here or on the command line.")
    if (words := not_live(changes, replicas)) is not None:
        st.text(words)
    if not wanted:
        return
    tokens = [wish_of(run, *_subject_and_want(wish), "apply")[1] for wish in wanted]
    confirm("Apply", lambda: _write(run, wanted, tokens), harmless=not changes.dropped)


def _write(run: RunDir, wanted: tuple[Wish, ...], tokens: list[str]) -> None:
    """All or nothing, as far as it can be known before: what one of them is refused for is told, and none is written."""
    checked = []

    def check() -> None:
        for wish in wanted:
            if wish.key is not None:
                parse_setting(run, wish.key, wish.value)
        checked.append(True)

    attempt(check)
    if checked:
        write_wishes([(_writer(run, wish), token) for wish, token in zip(wanted, tokens, strict=True)])


def _writer(run: RunDir, wish: Wish) -> Callable[[str], Intent]:
    if wish.key is None:
        return lambda token: want_dataset(run, wish.dataset or "", wish.value, who(), token=token)
    key = wish.key
    return lambda token: want_setting(run, key, wish.value, who(), token=token)


def _subject_and_want(wish: Wish) -> tuple[str, str]:
    return ("run", f"{wish.key}={wish.value}") if wish.key is not None else (f"dataset:{wish.dataset}", wish.value)


def deadline_form(run: RunDir, deadline: datetime | None, suggested: datetime) -> None:
    """A deadline to set, change or drop. Times are the viewer's; `suggested` stands there where none is set."""
    with st.popover("Deadline", help="When it has to be done: a faster way is asked for where the run is likely to be later"):
        chosen = st.datetime_input(
            "It has to be done by", value=deadline or suggested, key=f"deadline-{run.name}", format="YYYY-MM-DD"
        )
        zoned = None if chosen is None else chosen.replace(tzinfo=suggested.tzinfo)
        with st.container(horizontal=True):
            text = "none" if zoned is None else zoned.isoformat(timespec="seconds")
            st.button(
                "Set", key="deadline-set", type="primary", disabled=zoned is None, on_click=_set_deadline, args=(run, text)
            )
            st.button("Drop it", key="deadline-drop", disabled=deadline is None, on_click=_set_deadline, args=(run, "none"))


def _set_deadline(run: RunDir, text: str) -> None:
    _, token = wish_of(run, "run", f"deadline={text}", "deadline")
    write_wishes([(lambda t: want_setting(run, "deadline", text, who(), token=t), token)])
