"""The Data page's questions: one of the catalogue with its parameters, its answer, and the SQL that gives it."""

from __future__ import annotations

from typing import Any

import streamlit as st

from backend.config import ConfigError
from backend.report.answers import of_result, of_rows
from backend.report.formatting import plain
from backend.report.questions import BY_NAME, QUESTIONS, Kind, Parameter, Question, ask, begin
from backend.run_dir import RunDir, RunDirError
from backend.runs import list_runs, runs_folder
from pages.answer_table import draw_answer
from pages.long_answer import answer, forget
from pages.long_answer import begin as begin_long
from pages.nothing import cannot
from pages.tables import caption

PLACE = "data-question"


def draw_questions(run: RunDir, datasets: list[str]) -> None:
    """One question at a time."""
    names = [question.name for question in QUESTIONS]
    name = st.selectbox("Question", names, format_func=lambda n: BY_NAME[n].title, key="question", width=320)
    question = BY_NAME[name]
    caption(question.asks)
    try:
        with st.container(horizontal=True, vertical_alignment="bottom"):
            values = {p.name: _ask(run, question, p, datasets) for p in question.parameters}
            pressed = st.button("Ask", key="question-ask", type="primary") if question.long else False
        _answer(run, question, values, pressed)
    except (ConfigError, RunDirError) as error:
        cannot("The question cannot be answered", error)
    with st.expander("SQL", key="question_sql"):
        st.code(question.sql, language="sql", wrap_lines=True)


def _answer(run: RunDir, question: Question, values: dict[str, Any], pressed: bool) -> None:
    if not question.long:
        draw_answer(of_rows(ask(run, question, values)), name=f"{run.name}-{question.name}", key="question-answer")
        return
    asked = f"{run.root}/{question.name}/{sorted(values.items(), key=str)}"
    if st.session_state.get(f"{PLACE}/asked") != asked:
        forget(PLACE)
    if question.compares and values.get("other") is None:
        st.text("There is no other run to compare with.")
    elif pressed:
        st.session_state[f"{PLACE}/asked"] = asked
        begin_long(PLACE, lambda: begin(run, question, values))
    elif PLACE not in st.session_state:
        st.text("It reads texts or ids of every sample, which takes seconds: press Ask.")
    if (result := answer(PLACE)) is not None:
        draw_answer(of_result(result), name=f"{run.name}-{question.name}", key="question-answer")


def _ask(run: RunDir, question: Question, parameter: Parameter, datasets: list[str]) -> Any:
    key = f"ask-{question.name}-{parameter.name}"
    match parameter.kind:
        case Kind.DATASET:
            shown = lambda name: name or "all"  # noqa: E731  # a word for nothing chosen
            return st.selectbox(parameter.words, ["", *datasets], format_func=shown, key=key, width=200) or None
        case Kind.CHOICE:
            at = parameter.choices.index(parameter.default)
            words = lambda name: name.replace("_", " ")  # noqa: E731  # as everywhere on the pages
            return st.selectbox(parameter.words, parameter.choices, at, format_func=words, key=key, width=200)
        case Kind.NUMBER:
            number = st.number_input(parameter.words, parameter.least, parameter.most, parameter.default, key=key, width=200)
            return int(number)
        case Kind.RUN:
            others = [other for other in list_runs(runs_folder()) if other.root != run.root]
            return st.selectbox(parameter.words, others, format_func=lambda r: plain(r.name, keep=""), key=key, width=240)
