"""Parts of the Forecast page: charts, the table of plain arithmetic, and what the forecast assumes."""

from __future__ import annotations

import streamlit as st

from backend.report.assumptions import Assumption
from backend.report.end_words import length_words
from backend.report.forecast import ForecastView, record_words
from backend.report.forecast_charts import datasets_chart, fan_chart, range_history_chart
from backend.report.formatting import DASH, compact, number
from backend.report.headline import naive_words
from backend.report.sensitivity import SensitivityTable, sensitivity_of
from pages.charts import dark, draw
from pages.clock import time_html, zone
from pages.tables import Column, draw_table, heading, shown


def draw_as_of(view: ForecastView) -> None:
    """How old the forecast is, how often its like held, and what simple extrapolation says."""
    parts = [shown(record_words(view.record))]
    if view.said is not None:
        parts.insert(0, f"as of {time_html(view.said.at)}")
    if (words := naive_words(view.naive_s)) is not None:
        parts.append(shown(words))
    st.html(f'<div class="hw-fact-name">{" · ".join(parts)}</div>')


def draw_charts(view: ForecastView) -> None:
    """Where it is going and how that moved; the datasets in time and the table of plain arithmetic."""
    fan, moved, rows = (chart(view, zone(), dark()) for chart in (fan_chart, range_history_chart, datasets_chart))
    table = sensitivity_of(view.basis.observation, view.said.forecast) if view.basis and view.said else None
    left, right = st.columns(2)
    with left:
        for key, figure in (("fan", fan), ("moved", moved)):
            if figure is not None:
                draw(figure, key=f"forecast-{key}")
    with right:
        if rows is not None:
            draw(rows, key="forecast-datasets")
        if table is not None:
            draw_sensitivity(table)


def draw_sensitivity(table: SensitivityTable) -> None:
    """Mean by speed to duration; the cell that is reckoned with is marked."""
    parts = [f"{compact(table.samples)} samples" if table.samples else "", f"{compact(table.budget_tokens)} tokens of budgets"]
    left = " and ".join(part for part in parts if part and not part.startswith("0 "))
    heading("If answers are longer, or the server slower", f"{left} left, over the speed; without outages and the last drain")
    columns = [Column("Mean completion"), *(Column(f"{number(s)} tok/s", right=True) for s in table.speeds_tokens_per_s)]
    rows = []
    for i, mean in enumerate(table.means_tokens):
        cells = [_cell(table, i, j) for j in range(len(table.speeds_tokens_per_s))]
        rows.append([f"{number(mean)} tokens" if mean is not None else "any: budgets end it", *cells])
    draw_table(columns, rows, label="Duration by mean completion and speed")


def draw_assumptions(rows: tuple[Assumption, ...]) -> None:
    """Each with its source and what hangs on it."""
    if not rows:
        return
    heading("What this assumes", "and by how much later the likely end is where an assumption is 10 % too good")
    columns = [Column("Assumption"), Column("Value"), Column("Source"), Column("If 10 % wrong", right=True)]
    table = [[row.name, row.value, row.source, _later(row.later_s)] for row in rows]
    draw_table(columns, table, label="What this assumes")


def _cell(table: SensitivityTable, row: int, column: int) -> str:
    words = length_words(table.seconds[row][column])
    return f"▸ {words}" if (row, column) == (table.measured_row, table.measured_column) else words


def _later(seconds: float | None) -> str:
    return DASH if seconds is None else f"+{length_words(seconds)}"
