"""The Data page's box for SQL of one's own: it only reads, within limits of time and memory, and can be cancelled."""

from __future__ import annotations

import streamlit as st

from backend.report.answers import of_result
from backend.report.formatting import plain
from backend.report.long_question import LIMIT_S, MEMORY_BYTES, LongQuestion
from backend.report.sql_box import LONGEST, TABLES, SqlRefusedError, check
from backend.run_dir import RunDir
from pages.answer_table import draw_answer
from pages.long_answer import answer, begin, forget
from pages.tables import Column, caption, draw_table, heading

PLACE = "data-sql"
EXAMPLE = "FROM samples SELECT dataset, outcome, count(*) AS samples GROUP BY ALL ORDER BY ALL"


def draw_sql_box(run: RunDir, datasets: list[str]) -> None:
    """A statement, its result, and which tables there are."""
    heading(
        "SQL of your own",
        f"DuckDB, one SELECT that only reads; ended after {LIMIT_S:.0f} s or {MEMORY_BYTES / (1 << 30):.0f} GB of memory",
    )
    st.session_state.setdefault("sql_text", EXAMPLE)
    text = st.text_area("Statement", key="sql_text", height=140, max_chars=LONGEST)
    if st.button("Run", key="sql-run", type="primary"):
        _begin(run, text)
    place = f"{PLACE}/{run.root}"
    if refused := st.session_state.get(f"{place}/refused"):
        st.text(plain(refused))
    elif (result := answer(place)) is not None:
        draw_answer(of_result(result), name=f"{run.name}-sql", key="sql-answer")
        caption(f"Took {result.took_s:.1f} s")
    with st.expander("Tables", key="sql_tables"):
        draw_table([Column("Table"), Column("What it holds")], list(map(list, TABLES.items())), label="Tables")
        st.text("DESCRIBE samples tells the columns. Times are epoch seconds: to_timestamp(finished_at).")


def _begin(run: RunDir, text: str) -> None:
    place = f"{PLACE}/{run.root}"
    forget(place)
    st.session_state.pop(f"{place}/refused", None)
    try:
        checked = check(text)
    except SqlRefusedError as error:
        st.session_state[f"{place}/refused"] = str(error)
        return
    begin(place, lambda: LongQuestion(run, sql=checked))
