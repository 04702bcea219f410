"""Parts of the page of one dataset: its head, how its answers ended, and why some were refused."""

from __future__ import annotations

import streamlit as st

from backend.heartbeat import SupervisorState
from backend.records import DatasetState
from backend.report.dataset import Share, read_finish_reasons, read_refusals
from backend.report.formatting import DASH, compact, number, plural, share
from backend.report.views import DatasetView, EventView, RunView
from backend.run_dir import RunDir
from pages.outcome_table import draw_outcomes
from pages.states import of_dataset, state_html
from pages.tables import Bar, Column, Figure, Moment, draw_figures, draw_table, heading, said

_FINISH_WORDS = {
    "stop": "the model ended it",
    "length": "ended by the cap on new tokens",
    "tool_calls": "the model calls a tool",
    "rejected": "refused by the server",
}


def draw_state(view: RunView, dataset: DatasetView) -> None:
    """The state, as narrow as it is."""
    look = of_dataset(dataset, alive=view.supervisor.state is SupervisorState.ALIVE)
    st.html(f"<div>{state_html(look)}</div>", width="content")


def draw_head(view: RunView, dataset: DatasetView, bad_lines: EventView | None) -> None:
    """Why the dataset is in its state, figures against their limits, and what a reader must know about them."""
    if dataset.reason:
        said(_reason(dataset))
    if view.supervisor.state in (SupervisorState.DEAD, SupervisorState.NOT_ANSWERING):
        st.text("Nobody works on the run now: counts are exact, the state is what was said last.")
    draw_figures(
        [
            Figure("Samples", number(dataset.finished_samples), f"of {number(dataset.total_samples)}", _of_samples(dataset)),
            Figure("Completion tokens", compact(dataset.completion_tokens), _of_budget(dataset), _share_of_budget(dataset)),
            Figure("Mean completion", number(dataset.mean_completion_tokens), "tokens", "of the finished answers"),
            Figure("In flight", number(dataset.in_flight), "", f"{number(dataset.retries)} sent again so far"),
            Figure("Refused", number(dataset.rejected), "", "by the server, for good"),
            Figure("Bad lines", number(dataset.bad_lines), "", "passed over: no prompt in them"),
        ]
    )
    if bad_lines is not None and dataset.bad_lines:
        said(bad_lines.message)
    for note in view.notes:
        said(note)


def draw_ends(run: RunDir, name: str) -> None:
    """What the samples are worth, and how they ended."""
    # one below the other: side by side the meanings would be cut off on a screen of 1,440 px
    draw_outcomes(run, name)
    heading("Finish reasons", "why generation stopped, as the server says")
    _shares("Reason", read_finish_reasons(run, name), _FINISH_WORDS)


def draw_refusals(run: RunDir, name: str) -> None:
    """The server's words about what it refused, with counts."""
    refusals = read_refusals(run, name)
    if not refusals:
        return
    heading("Errors", "the server's words; those that differ in numbers only are counted together")
    columns = [Column("Samples", right=True), Column("Error"), Column("First"), Column("Last")]
    rows = [[number(r.samples), r.words, Moment(r.first_at), Moment(r.last_at)] for r in refusals]
    draw_table(columns, rows, label="Errors")


def _shares(what: str, shares: list[Share], words: dict[str, str]) -> None:
    columns = [Column(what), Column("Samples", right=True), Column("Share"), Column("Tokens", right=True), Column("Meaning")]
    total = sum(one.samples for one in shares)
    rows = [
        [
            one.name.replace("_", " "),
            number(one.samples),
            Bar(one.samples / total, share(one.samples, total)),
            compact(one.completion_tokens),
            words.get(one.name, DASH),
        ]
        for one in shares
    ]
    draw_table(columns, rows, label=what)


def _reason(dataset: DatasetView) -> str:
    if dataset.state is DatasetState.DONE:
        return {"budget": "Its token budget is reached.", "samples": "Its number of samples is reached."}.get(
            dataset.reason or "", "No prompt is left."
        )
    return dataset.reason or ""


def _of_samples(dataset: DatasetView) -> str:
    limit = f"at most {number(dataset.max_samples)} wanted" if dataset.max_samples is not None else "every prompt"
    replaced = f", {plural(dataset.superseded_samples, 'replaced one', 'replaced ones')}" if dataset.superseded_samples else ""
    return f"{share(dataset.finished_samples, dataset.total_samples)}, {limit}{replaced}"


def _of_budget(dataset: DatasetView) -> str:
    return "no budget" if dataset.token_budget is None else f"of {compact(dataset.token_budget)}"


def _share_of_budget(dataset: DatasetView) -> str:
    budget = f"{share(dataset.completion_tokens, dataset.token_budget)} of the budget, " if dataset.token_budget else ""
    return f"{budget}prompts {compact(dataset.prompt_tokens)}"
