"""Sending work to an API and back: Measure it, Switch and Back to local, each with its price said before it is pressed."""

from __future__ import annotations

from collections.abc import Callable

import streamlit as st

from backend.config import ConfigError
from backend.control.intents import want_probe, want_route
from backend.heartbeat import SupervisorState
from backend.records import DatasetState, Intent
from backend.report.apis_text import API_HEAD, api_rows, routes_sentence, switch_words
from backend.report.live import LiveError
from backend.report.probe_price import probe_price
from backend.report.views import RunView
from backend.run_dir import RunDir
from pages.live.routes import LIVE
from pages.nothing import cannot
from pages.pressing import confirm, tell_answers, who, wish_of, write_wish, write_wishes
from pages.tables import Column, caption, draw_table, heading

EVERY_S = 5
ENDED = (DatasetState.DONE, DatasetState.KILLED, DatasetState.FAILED)
COLUMNS = [Column(name, right=i > 1) for i, name in enumerate(API_HEAD)]
LEAST_PROMPTS, MOST_PROMPTS, USUAL_PROMPTS = 16, 64, 32


@st.fragment(run_every=EVERY_S)
def draw_switch(run: RunDir) -> None:
    """The APIs of run.toml as they are at work, and what can be done with each."""
    try:
        view = LIVE.fresh_view(run)
    except LiveError as error:
        cannot(run.name, error)
        return
    if not view.apis:
        return
    heading("Measure and switch", "New requests go where you send them; those in flight finish where they are")
    tell_answers(run)
    caption(routes_sentence(view))
    draw_table(COLUMNS, api_rows(view), label="APIs of this run")
    if view.supervisor.state is not SupervisorState.ALIVE:
        caption("Nobody works on this run: start it to measure an API or to switch.")
        return
    for api in view.apis:
        with st.container(horizontal=True, key=f"hw-api-{api.name}"):
            _buttons(run, view, api.name)


def _buttons(run: RunDir, view: RunView, api: str) -> None:
    """Of one API. Places that stay empty keep a button of before from being pressed."""
    probing = any(one.probing for one in view.apis)
    key, _ = wish_of(run, "run", f"probe {api}", "switch")
    if st.button(f"Measure {api}…", key=key, disabled=probing, help="16 to 64 prompts within a cap; asks first"):
        _confirm_probe(run, api)
    if [d for d in view.datasets if d.state not in ENDED and d.route != api]:
        if st.button(f"Switch to {api}…", key=f"switch-{api}", type="primary", help="Choose datasets; says the price first"):
            _confirm_switch(run, view, api)
    else:
        st.empty()
    away = [d.name for d in view.datasets if d.route.removeprefix("both:") == api and d.state not in ENDED]
    if away:
        wishes = [(_route(run, name, "local"), wish_of(run, f"dataset:{name}", "route local", "switch")[1]) for name in away]
        st.button(
            "Back to local",
            key=f"back-{api}-{wishes[0][1][:8]}",
            help=f"New requests of {', '.join(away)} go to the engine again",
            on_click=write_wishes,
            args=(wishes,),
        )
    else:
        st.empty()


@st.dialog("Measure this API?")
def _confirm_probe(run: RunDir, api: str) -> None:
    prompts = int(st.number_input("Prompts", LEAST_PROMPTS, MOST_PROMPTS, USUAL_PROMPTS, key="probe_prompts"))
    cap_usd = float(st.number_input("It may never cost more than, US dollars", 0.01, 1_000.0, 1.0, key="probe_cap"))
    try:
        price = probe_price(run, api, prompts, cap_usd)
    except ConfigError as error:
        st.text(str(error))
        return
    st.text(price.words)
    if price.worst_usd is None:
        return
    _, token = wish_of(run, "run", f"probe {api} {prompts} {cap_usd}", "dialog")
    wish = lambda t: want_probe(run, api, prompts, cap_usd, who(), token=t)  # noqa: E731 - as all wishes are handed on
    confirm(f"Measure {api}", lambda: write_wish(wish, token), harmless=True)


@st.dialog("Switch to this API?")
def _confirm_switch(run: RunDir, view: RunView, api: str) -> None:
    names = [d.name for d in view.datasets if d.state not in ENDED]
    chosen = st.multiselect(
        "Datasets", names, [d.name for d in view.datasets if d.name in names and d.route != api], key="switch_to"
    )
    both = st.toggle("The engine works on them as well", key="switch_both")
    st.text(switch_words(view, api, chosen, both=both))
    if not chosen:
        return
    to = f"both:{api}" if both else api
    wishes = [(_route(run, name, to), wish_of(run, f"dataset:{name}", f"route {to}", "dialog")[1]) for name in chosen]
    confirm(f"Switch to {api}", lambda: write_wishes(wishes), harmless=True)


def _route(run: RunDir, dataset: str, to: str) -> Callable[[str], Intent]:
    return lambda token: want_route(run, dataset, to, who(), token=token)
