"""Flags on samples: somebody marks one with a note, or takes the mark away. They change nothing of the run and are kept."""

from __future__ import annotations

import sqlite3
import time
from contextlib import closing
from typing import Final

from backend.control import ControlError
from backend.heartbeat import explain_sqlite
from backend.rows import stored_sample_id
from backend.run_dir import RunDir, open_state

LONGEST_NOTE: Final = 2_000  # characters


def flag_sample(run: RunDir, dataset: str, sample_id: str, turn: int, attempt: int, *, note: str, who: str) -> None:
    """Flags a sample; a second flag takes the place of the first. Raises ControlError."""
    if len(note) > LONGEST_NOTE:
        raise ControlError(f"The note has {len(note):,} characters; at most {LONGEST_NOTE:,} are kept.")
    note = note.encode("utf-8", "replace").decode()  # lone surrogates are no text that SQLite can hold
    _write(
        run,
        "INSERT OR REPLACE INTO flags (dataset, sample_id, turn, attempt, at, who, note) VALUES (?, ?, ?, ?, ?, ?, ?)",
        (dataset, stored_sample_id(sample_id), turn, attempt, time.time(), who, note),
    )


def unflag_sample(run: RunDir, dataset: str, sample_id: str, turn: int, attempt: int) -> None:
    """Takes the flag off a sample; without one nothing happens. Raises ControlError."""
    _write(
        run,
        "DELETE FROM flags WHERE dataset = ? AND sample_id = ? AND turn = ? AND attempt = ?",
        (dataset, stored_sample_id(sample_id), turn, attempt),
    )


def _write(run: RunDir, statement: str, values: tuple[object, ...]) -> None:
    try:
        with closing(open_state(run)) as con:
            con.execute(statement, values)
    except sqlite3.Error as error:
        raise ControlError(f"The flag could not be written to {run.state}: {explain_sqlite(error)}") from None
