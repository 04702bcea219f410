"""What if: other limits, another cap, more requests or replicas, fewer datasets. The new range beside the present one."""

from __future__ import annotations

from typing import Any

import streamlit as st

from backend import config, forecasts
from backend.config import ConfigError
from backend.forecast.calibrate import Range
from backend.forecasts import Basis
from backend.report.end_words import length_words, span_after, span_words, work_words
from backend.report.ending import Ending
from backend.report.headline import OVER
from backend.report.options import SAME_DATA
from backend.report.what_if import Changes, Imagined, imagine
from backend.run_dir import RunDir, RunDirError
from pages.apply import apply_button
from pages.clock import zone
from pages.nothing import cannot
from pages.tables import Figure, draw_figures, heading

EVERY = "every dataset"
ASSUMED_EFFICIENCY = 0.9


@st.cache_data(max_entries=256, show_spinner=False)
def _imagined(root: str, at: float, changes: Changes, replicas: int, _basis: Basis) -> Imagined:
    """`root` and `at` name the basis, which cannot be hashed."""
    return imagine(_basis, changes, replicas)


@st.fragment
def what_if(run: RunDir, end: Ending, now: float) -> None:
    """The form and its answer. Nothing is changed here before Apply was confirmed."""
    try:
        basis = forecasts.read_basis(run)
        replicas = config.load(run.config).engine.replicas
    except (ConfigError, RunDirError) as error:
        cannot("What the forecast was made from cannot be read", error)
        return
    if basis is None:
        return
    heading("What if", "Nothing changes before you press Apply and confirm; empty fields stay as they are")
    changes = _form(run, basis, replicas)
    if changes == Changes():
        st.text(
            "Fill in a field: the new range stands here, beside the present one. Samples and caps can only be lowered here."
        )
        return
    try:
        present = _imagined(str(run.root), basis.at, Changes(), replicas, basis)
        then = _imagined(str(run.root), basis.at, changes, replicas, basis)
    except ValueError as error:
        st.text(f"That cannot be: {error}.")
        return
    draw_figures(_figures(present, then, basis, end, now))
    price = "; ".join(then.prices or (SAME_DATA,))
    st.text(f"{price[0].upper()}{price[1:]}.")  # names keep their capitals
    apply_button(run, "These changes", changes, replicas, place="form")


def _form(run: RunDir, basis: Basis, replicas: int) -> Changes:
    seen = basis.observation
    open_ones = {one.name: one for one in seen.datasets if one.state not in OVER}
    names = list(open_ones)
    key = f"what-if-{run.name}-"
    with st.grid(columns=4, min_column_width=170):
        chosen = st.selectbox("Limits of", [EVERY, *names] if len(names) > 1 else names, key=f"{key}dataset")
        samples = _number("Samples at most", f"{key}samples")
        budget = _number("Token budget", f"{key}budget")
        cap = _number("Cap on new tokens", f"{key}cap")
        concurrency = _number("Requests in flight", f"{key}concurrency", placeholder=str(seen.concurrency))
        more = _number("Replicas", f"{key}replicas", placeholder=str(replicas))
        efficiency = st.number_input(
            "Efficiency of more replicas", 0.0, 1.0, ASSUMED_EFFICIENCY, 0.05, key=f"{key}efficiency", disabled=more is None,
            help="Assumed, not measured: 1 means that twice the replicas are twice as fast",
        )  # fmt: skip
        dropped = st.multiselect("Drop", names, key=f"{key}dropped", placeholder="no dataset")
        first = st.multiselect("Run first, in this order", names, key=f"{key}order", placeholder="as it is")
    touched = [one for name, one in open_ones.items() if name not in dropped and chosen in (EVERY, name)]
    # what is more than there is now is not known: nobody has seen longer answers, nor prompts that are not there
    return Changes(
        samples=tuple((one.name, samples) for one in touched if samples is not None and samples < one.prompts),
        budgets=tuple((one.name, budget) for one in touched if budget is not None),
        caps=tuple((one.name, cap) for one in touched if cap is not None and cap < one.cap_tokens),
        concurrency=concurrency if concurrency != seen.concurrency else None,
        replicas=more if more != replicas else None,
        efficiency=efficiency if more not in (None, replicas) else 1.0,
        dropped=tuple(dropped),
        order=tuple(first),
    )


def _number(label: str, key: str, **more: Any) -> int | None:
    value = st.number_input(label, min_value=1, value=None, step=1, key=key, **more)
    return None if value is None else int(value)


def _figures(present: Imagined, then: Imagined, basis: Basis, end: Ending, now: float) -> list[Figure]:
    told = [Figure("As it is", *_told(present, basis, end, now)), Figure("With these changes", *_told(then, basis, end, now))]
    if present.remaining is not None and then.remaining is not None:
        sooner = present.remaining.p50 - then.remaining.p50
        word = "sooner" if sooner >= 0 else "later"
        told.append(Figure("Difference", length_words(abs(sooner)), word, "of the likely ends"))
    return told


def _told(one: Imagined, basis: Basis, end: Ending, now: float) -> tuple[str, str, str]:
    """Value, unit and context of a figure."""
    if one.remaining is None:
        return "–", "", one.why_none or ""
    left: Range = one.remaining
    when = span_words(span_after(basis.at, left), now, zone()) if end.span is not None else work_words(left)
    return length_words(left.p50), "left", when
