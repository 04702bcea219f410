"""An answer as a table that can be sorted and copied, and as files. Cells are drawn on a canvas: whatever they hold is text."""

from __future__ import annotations

import streamlit as st

from backend.report.answers import ROWS_SHOWN, AnswerTable, to_csv, to_parquet
from backend.report.formatting import DASH, plural
from backend.report.long_question import RESULT_ROWS

_SHORT = 12  # rows that are shown without a scroll bar of their own


def draw_answer(answer: AnswerTable, *, name: str, key: str) -> None:
    """The first rows, how many there are, and buttons for all of them as CSV or Parquet."""
    table = answer.shown()
    rows = answer.table.num_rows
    if not rows:
        st.text("No row.")
        return
    columns = {field: _column(field) for field in table.column_names}
    st.dataframe(
        table,
        column_config={name: column for name, column in columns.items() if column is not None},
        height="content" if table.num_rows <= _SHORT else "auto",
        hide_index=True,
        placeholder=DASH,
        key=key,
    )
    with st.container(horizontal=True, vertical_alignment="center", horizontal_alignment="distribute"):
        st.text(_how_many(rows, answer.cut))
        with st.container(horizontal=True, width="content"):
            for word, make, ending in (("CSV", to_csv, "csv"), ("Parquet", to_parquet, "parquet")):
                st.download_button(
                    word,
                    data=lambda make=make: make(answer),  # type: ignore[misc]
                    file_name=f"{name}.{ending}",
                    on_click="ignore",
                    key=f"{key}-{ending}",
                )


def _how_many(rows: int, cut: bool) -> str:
    there = f"More than {rows:,} rows: at most {RESULT_ROWS:,} are fetched." if cut else f"{plural(rows, 'row')}."
    return f"{there} The first {ROWS_SHOWN:,} are shown." if rows > ROWS_SHOWN else there


def _column(name: str) -> object:
    if name.endswith("_at"):
        return st.column_config.DatetimeColumn(format="YYYY-MM-DD HH:mm:ss", timezone=st.context.timezone)
    if name.startswith("share_") or "_share_" in name:
        return st.column_config.NumberColumn(format="percent")
    if name.endswith("_usd"):
        return st.column_config.NumberColumn(format="$%.4f")
    if name.endswith(("_s", "_per_s", "_a_request", "in_flight")) or name.startswith("mean_") or "_mean_" in name:
        return st.column_config.NumberColumn(format="%.2f")
    if name.endswith("tokens") or name in ("samples", "answers", "requests", "prompts"):
        return st.column_config.NumberColumn(format="localized")
    return None
