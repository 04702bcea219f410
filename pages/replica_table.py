"""The replicas of an engine as a table."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from backend.report import engine
from backend.report.formatting import DASH, number
from backend.report.views import RunView
from pages.states import UNKNOWN, of_engine
from pages.tables import Cell, Column, Moment, draw_table

COLUMNS = [
    Column("Replica"), Column("State"), Column("Since"), Column("In flight", right=True), Column("At the engine"),
    Column("Restarts", right=True), Column("Pid", right=True), Column("Version"), Column("Address"), Column("Why"),
]  # fmt: skip


def replica_table(view: RunView, newest: Mapping[str, Mapping[str, Any]]) -> None:
    """A row a replica; `newest` is what was last measured of each."""
    draw_table(COLUMNS, [_row(view, i, newest) for i in range(len(view.replicas))], label="Replicas")


def _row(view: RunView, index: int, newest: Mapping[str, Mapping[str, Any]]) -> list[Cell]:
    """One replica's cells; what was true before the supervisor went is not told as if it were."""
    r, now = view.replicas[index], engine.is_known_now(view)
    pid = str(r.pid) if r.pid is not None and now else DASH
    return [
        r.name, of_engine(r.state) if now else UNKNOWN, Moment(r.since), number(r.in_flight if now else None),
        engine.replica_load(newest, r.name), number(r.restarts), pid, r.version or DASH, r.url or DASH, r.reason or DASH,
    ]  # fmt: skip
