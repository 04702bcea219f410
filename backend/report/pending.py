"""Wishes that are written down and not yet so: what a page shows as "pausing…" between a press and the next heartbeat."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Final

from backend.heartbeat import has_table, reading
from backend.records import DatasetState
from backend.report.views import RunView
from backend.run_dir import RunDir

# The last wish of each subject, where it is unanswered, or accepted after the supervisor last said how things are.
_PENDING: Final = """SELECT i.subject, i.value FROM intents AS i LEFT JOIN intent_answers AS a ON a.intent_id = i.id
WHERE i.action = 'state' AND i.id IN (SELECT MAX(id) FROM intents WHERE action = 'state' GROUP BY subject)
AND (a.intent_id IS NULL OR (a.accepted AND a.at > :heartbeat_at))"""
_WANTED: Final = {"running": DatasetState.RUNNING, "paused": DatasetState.PAUSED, "killed": DatasetState.KILLED}


def read_pending(run: RunDir, heartbeat_at: float | None) -> dict[str, str]:
    """Subject ("run", "engine", "dataset:NAME") → what is wanted of it and not yet so. Raises RunDirError."""
    with reading(run.state) as con:
        if con is None or not (has_table(con, "intents") and has_table(con, "intent_answers")):
            return {}
        rows = con.execute(_PENDING, {"heartbeat_at": heartbeat_at or 0.0}).fetchall()
    return {row["subject"]: str(json.loads(row["value"]).get("want")) for row in rows}


def with_pending(view: RunView, pending: dict[str, str]) -> RunView:
    """The same run, each dataset with what was just asked of it as `wanted`."""
    datasets = tuple(
        replace(d, wanted=_WANTED[want]) if (want := pending.get(f"dataset:{d.name}")) in _WANTED else d for d in view.datasets
    )
    return replace(view, datasets=datasets)
