"""The datasets of a run as rows to press: how far each is, how it goes, and its buttons. Refreshed every few seconds."""

from __future__ import annotations

from collections.abc import Mapping
from html import escape

import streamlit as st

from backend.forecast.forecast import DatasetForecast
from backend.forecasts import Said
from backend.heartbeat import SupervisorState
from backend.records import DatasetState
from backend.report.end_words import span_words
from backend.report.ending import dataset_ends
from backend.report.figures import NAIVE_DIFFERS
from backend.report.formatting import DASH, compact, number, plain
from backend.report.headline import OVER, progress
from backend.report.views import DatasetView, RunView
from backend.run_dir import RunDir
from pages.buttons import dataset_buttons
from pages.clock import zone
from pages.states import of_dataset, state_html

HEAD = ("Dataset", "State", "Progress", "Samples", "Mean tok", "tok/s", "Expected end")
NUMBERS = (3, 4, 5)  # of these columns


def dataset_table(run: RunDir, view: RunView, tokens_per_s: Mapping[str, float | None], said: Said | None) -> None:
    """A row a dataset, in the order in which they run. `said`: the newest forecast."""
    ends = {name: span_words(end, view.at, zone()) for name, end in dataset_ends(view, said).items()}
    told = {one.name: one for one in said.forecast.datasets} if said is not None else {}
    alive = view.supervisor.state in (SupervisorState.ALIVE, SupervisorState.NOT_ANSWERING)
    with st.container(key="hw-table"):
        cells = "".join(f'<span class="{"hw-number" if i in NUMBERS else ""}">{word}</span>' for i, word in enumerate(HEAD))
        st.html(f'<div class="hw-row hw-head" aria-hidden="true">{cells}</div>')
        for dataset in view.datasets:
            with st.container(key=f"hw-row-{dataset.name}", horizontal=True, vertical_alignment="center"):
                name = dataset.name
                st.html(_row(dataset, tokens_per_s.get(name), told.get(name), ends.get(name), alive=alive))
                with st.container(
                    key=f"hw-do-{dataset.name}", horizontal=True, horizontal_alignment="right", gap="xsmall", width=148
                ):
                    dataset_buttons(run, view, dataset)


def _row(d: DatasetView, tokens_per_s: float | None, told: DatasetForecast | None, end: str | None, *, alive: bool) -> str:
    look, share = of_dataset(d, alive=alive), progress(d)
    width = f"{100 * share:.1f}%" if share is not None else "0%"
    speed = tokens_per_s if d.state in (DatasetState.RUNNING, DatasetState.DRAINING) else None
    reason = escape(plain(d.reason, keep="")) if d.reason and d.state is not DatasetState.DONE else ""
    return (
        f'<div class="hw-row" role="group" aria-label="{escape(d.name)}">'
        f'<span class="hw-name">{escape(d.name)}</span>'
        f'<span class="hw-cell-state">{state_html(look)}</span>'
        f'<span class="hw-progress"><span class="hw-bar"><span class="hw-bar-done hw-fill-{look.tone}" '
        f'style="width:{width}"></span></span><span class="hw-small">{_limit(d)}</span></span>'
        f'<span class="hw-number"><span class="hw-key">samples </span>{number(d.finished_samples)}'
        f'<span class="hw-small">{_total(d)}</span></span>'
        f'<span class="hw-number"><span class="hw-key">mean </span>{_mean(d, told)}</span>'
        f'<span class="hw-number"><span class="hw-key">tok/s </span>{number(speed)}</span>'
        f'<span class="hw-end{"" if end else " hw-none"}">{escape(end or DASH)}</span>'
        + (f'<span class="hw-reason">{reason}</span>' if reason else "")
        + "</div>"
    )


def _mean(d: DatasetView, told: DatasetForecast | None) -> str:
    """The honest mean, those in flight reckoned with; the naive one small behind it where they differ."""
    naive = d.mean_completion_tokens
    if told is None or told.mean_tokens is None or told.budget_binds is None or d.state in OVER or not told.begun:
        return number(naive)
    honest = told.mean_tokens.p50
    differs = naive is not None and abs(naive - honest) > NAIVE_DIFFERS * honest
    return f"{number(honest)}" + (f'<span class="hw-small hw-naive"> ({number(naive)})</span>' if differs else "")


def _limit(d: DatasetView) -> str:
    if d.token_budget is not None:
        return f"{compact(d.completion_tokens)} / {compact(d.token_budget)}"
    return f"{compact(d.completion_tokens)} tok" if d.completion_tokens is not None else DASH


def _total(d: DatasetView) -> str:
    return "" if d.total_samples is None or d.token_budget is not None else f" / {number(d.total_samples)}"
