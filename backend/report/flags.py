"""Which samples were flagged, by whom and why. Writing flags is `backend.control`'s."""

from __future__ import annotations

from dataclasses import dataclass

from backend.heartbeat import has_table, reading
from backend.records import Row
from backend.rows import stored_sample_id
from backend.run_dir import RunDir


@dataclass(frozen=True, slots=True)
class Flag:
    """Somebody's mark on a sample. `at` in epoch seconds; the note is anybody's words."""

    at: float
    who: str
    note: str


def read_flag(run: RunDir, row: Row) -> Flag | None:
    """The flag on a sample; None without one. Raises RunDirError."""
    query = "SELECT at, who, note FROM flags WHERE dataset = ? AND sample_id = ? AND turn = ? AND attempt = ?"
    with reading(run.state) as con:
        if con is None or not has_table(con, "flags"):
            return None
        found = con.execute(query, (row.dataset, stored_sample_id(row.sample_id), row.turn, row.attempt)).fetchone()
    return None if found is None else Flag(*found)
