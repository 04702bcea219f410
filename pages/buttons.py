"""Every button that does something to a run. A press writes down what is wanted; the supervisor does it, or says why not.

That one press acts once is `pressing.py`'s. What was asked and is not yet so is shown by `states.py`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from typing import Final

import streamlit as st

from backend.control.intents import want_dataset, want_engine, want_run
from backend.control.start import StartOutcome, start
from backend.heartbeat import SupervisorState
from backend.records import DatasetState, Intent, RunPhase
from backend.report.formatting import compact, plural
from backend.report.pending import read_pending
from backend.report.views import DatasetView, RunView
from backend.run_dir import RunDir, RunDirError
from pages.pressing import attempt, confirm, tell, who, wish_of, write_wish
from pages.states import of_dataset

MOST_BUTTONS: Final = 2  # that a run or a dataset has at a time
_ENDED: Final = frozenset({DatasetState.DONE, DatasetState.FAILED})
_RESUMABLE: Final = frozenset({DatasetState.PAUSED, DatasetState.KILLED, DatasetState.HELD})


def dataset_buttons(run: RunDir, view: RunView, dataset: DatasetView, *, place: str = "table") -> None:
    """Pause or Resume, and Kill, of one dataset: those that make sense now. `place` tells two such groups on a page apart."""
    _dataset_buttons(run, view, dataset, place)
    _take_places()


def _dataset_buttons(run: RunDir, view: RunView, dataset: DatasetView, place: str) -> None:
    wanted = dataset.wanted or dataset.state
    if wanted is None or wanted in _ENDED:
        return
    if view.supervisor.state not in (SupervisorState.ALIVE, SupervisorState.NOT_ANSWERING) and not (
        # a run that ended with this kill: the wish waits for Start, which is offered once it is written
        view.supervisor.state is SupervisorState.LEFT and DatasetState.KILLED in (dataset.state, dataset.wanted)
    ):
        return
    if f"dataset:{dataset.name}" in _pending(run, view):
        # until the supervisor has answered: no other button under the pointer of who clicks twice
        st.button(of_dataset(dataset).word.capitalize(), key=f"asked-{place}-{dataset.name}", disabled=True)
        return
    name, subject = dataset.name, f"dataset:{dataset.name}"
    if wanted in _RESUMABLE:
        words = {DatasetState.KILLED: "Revive", DatasetState.HELD: "Go on anyway" if place == "depth" else "Go on"}
        word = words.get(wanted, "Resume")
        _button(run, word, subject=subject, want="running", place=place, wish=_dataset_wish(run, name, "running"))
    else:
        _button(run, "Pause", subject=subject, want="paused", place=place, wish=_dataset_wish(run, name, "paused"))
    if wanted is not DatasetState.KILLED:
        key, _ = wish_of(run, subject, "killed", place)
        if st.button("Kill", key=key, help=f"Kill {name}; asks first"):
            _confirm_kill(run, dataset)


def run_buttons(run: RunDir, view: RunView, *, place: str = "top") -> None:
    """Start, or Pause all and Stop: what can be done to the run as a whole. Where the banner offers a restart, nothing."""
    _run_buttons(run, view, place)
    _take_places()


def _run_buttons(run: RunDir, view: RunView, place: str) -> None:
    if needs_restart(view):
        return
    if view.supervisor.state not in (SupervisorState.ALIVE, SupervisorState.NOT_ANSWERING):
        # what is finished has nothing to start for, unless somebody wished for more since
        if view.phase is not RunPhase.FINISHED or view.unanswered_intents:
            start_button(run, view, place=place)
        return
    pending = _pending(run, view)
    open_ones = [(d.name, d.wanted or d.state) for d in view.datasets if f"dataset:{d.name}" not in pending]
    running = [name for name, state in open_ones if state not in (*_ENDED, *_RESUMABLE, None)]
    paused = [name for name, state in open_ones if state is DatasetState.PAUSED]
    if running:
        _all_button(run, "Pause all", running, "paused", place)
    elif paused:
        _all_button(run, "Resume all", paused, "running", place)
    key, _ = wish_of(run, "run", "stopped", place)
    if st.button("Stop", key=key, help="Stop the run and its engine; it can be started again"):
        _confirm_stop(run, view)


def needs_restart(view: RunView) -> bool:
    """Whether the supervisor died or gave up: every page says so, with the button that restarts it."""
    gave_up = view.supervisor.state is SupervisorState.LEFT and view.phase is RunPhase.FAILED
    return gave_up or view.supervisor.state is SupervisorState.DEAD


def start_button(run: RunDir, view: RunView, *, place: str = "top", primary: bool = True) -> None:
    """Start or Restart, where no supervisor lives. Pressed in many tabs at once it starts one."""
    word = "Restart" if needs_restart(view) else "Start"
    key, token = wish_of(run, "run", f"running after life {view.supervisor.life}", place)
    if st.button(word, key=key, type="primary" if primary else "secondary", help="Start the supervisor of this run"):
        with st.spinner("Starting…"):
            attempt(lambda: _start(run, token))
        st.rerun()


def engine_buttons(run: RunDir, view: RunView, *, wanted_running: bool, place: str = "engine") -> None:
    """Stop engine or Start engine; the run stays."""
    if view.supervisor.state is not SupervisorState.ALIVE:
        return
    word, want = ("Stop engine", "stopped") if wanted_running else ("Start engine", "running")
    _button(run, word, subject="engine", want=want, place=place, wish=lambda token: want_engine(run, want, who(), token=token))


def _take_places() -> None:
    """A button that a rerun of a fragment does not draw again stays to be pressed unless something takes its place."""
    for _ in range(MOST_BUTTONS):
        st.empty()


def _pending(run: RunDir, view: RunView) -> Mapping[str, str]:
    try:
        return read_pending(run, view.supervisor.heartbeat_at)
    except RunDirError:
        return {}


def _button(run: RunDir, word: str, *, subject: str, want: str, place: str, wish: Callable[[str], Intent]) -> None:
    key, token = wish_of(run, subject, want, place)
    name = subject.removeprefix("dataset:")
    st.button(word, key=key, help=f"{word} {name}" if name != subject else None, on_click=write_wish, args=(wish, token))


def _all_button(run: RunDir, word: str, names: Sequence[str], want: str, place: str) -> None:
    wishes = [(name, wish_of(run, f"dataset:{name}", want, place)[1]) for name in names]
    key = f"press-{place}-all-{want}-{hashlib.sha256(''.join(t for _, t in wishes).encode()).hexdigest()[:8]}"

    def write_all() -> None:
        for name, token in wishes:
            write_wish(_dataset_wish(run, name, want), token)

    st.button(word, key=key, help=f"{word}: {', '.join(names)}", on_click=write_all)


@st.dialog("Kill this dataset?")
def _confirm_kill(run: RunDir, dataset: DatasetView) -> None:
    stays = f"{plural(dataset.finished_samples or 0, 'finished sample')} ({compact(dataset.completion_tokens or 0)} tokens)"
    flying = dataset.in_flight or 0
    lost = (
        f"{plural(flying, 'request')} in flight {'is' if flying == 1 else 'are'} aborted."
        if flying
        else "nothing is in flight."
    )
    st.text(f"{dataset.name}: {lost}\n{stays} stay. It can be revived later and goes on from there.")
    _, token = wish_of(run, f"dataset:{dataset.name}", "killed", "dialog")
    confirm(f"Kill {dataset.name}", lambda: write_wish(_dataset_wish(run, dataset.name, "killed"), token))


@st.dialog("Stop this run?")
def _confirm_stop(run: RunDir, view: RunView) -> None:
    total = view.totals.finished_samples
    stays = "Everything finished stays" if total is None else f"{plural(total, 'finished sample')} stay"
    now = st.toggle("Do not wait for requests in flight; they are made again later", key="stop_now")
    st.text(
        f"{plural(view.in_flight or 0, 'request')} in flight {'are aborted' if now else 'finish first'}, then the engine is "
        f"stopped and its GPUs are free.\n{stays}. Start goes on from there."
    )
    _, token = wish_of(run, "run", f"stopped{' now' if now else ''}", "dialog")
    confirm("Stop the run", lambda: write_wish(lambda t: want_run(run, "stopped", who(), now=now, token=t), token))


def _dataset_wish(run: RunDir, name: str, want: str) -> Callable[[str], Intent]:
    return lambda token: want_dataset(run, name, want, who(), token=token)


def _start(run: RunDir, token: str) -> None:
    result = start(run, who(), token=token)
    if result.outcome is StartOutcome.FAILED:
        tell(f"{run.name} could not be started. {result.reason}")
    elif result.outcome is StartOutcome.SLOW:
        tell(f"{run.name} was started (pid {result.pid}) and has not given a sign of life yet.")
