"""What happened in a run: filtered, page by page, newest first, and as CSV. Messages are anybody's words: plain text only."""

from __future__ import annotations

import csv
import io
import sqlite3
from dataclasses import dataclass
from typing import Final

from backend.heartbeat import has_table, reading
from backend.records import Severity
from backend.report.formatting import csv_cell, duration, moment, plural
from backend.report.views import EventView
from backend.run_dir import RunDir

CSV_ROWS: Final = 100_000  # the newest; a spreadsheet holds no more
_COLUMNS: Final = "at, kind, subject, severity, message, who"
_WHERE: Final = """WHERE (:severities = '' OR instr(:severities, ',' || severity || ','))
AND (:subject = '' OR subject = :subject)
AND (:text = '' OR instr(lower(message), lower(:text)) OR instr(lower(who), lower(:text)) OR instr(kind, lower(:text)))"""


@dataclass(frozen=True, slots=True)
class EventFilter:
    """Which events are asked for. Everything, unless told otherwise."""

    severities: tuple[Severity, ...] = ()
    subject: str | None = None
    text: str = ""  # within the message, who asked, or the kind; upper and lower case are one


@dataclass(frozen=True, slots=True)
class EventPage:
    """Some of the events that a filter lets through, newest first, and how many there are in all."""

    events: tuple[EventView, ...]
    total: int
    subjects: tuple[str, ...]  # of all events of the run, sorted


@dataclass(frozen=True, slots=True)
class EventCounts:
    """All events of a run."""

    total: int = 0
    warnings: int = 0
    errors: int = 0
    newest_at: float | None = None  # epoch seconds


def read_counts(run: RunDir) -> EventCounts:
    """How many there are. Raises RunDirError."""
    with reading(run.state) as con:
        if con is None or not has_table(con, "events"):
            return EventCounts()
        query = "SELECT count(*), sum(severity = ?), sum(severity = ?), max(at) FROM events"
        total, warnings, errors, newest_at = con.execute(query, (Severity.WARNING, Severity.ERROR)).fetchone()
    return EventCounts(total, warnings or 0, errors or 0, newest_at)


def events_headline(counts: EventCounts, now: float) -> str:
    """All that happened in a sentence: "121 events, 1 error and 3 warnings among them; the newest 12 s ago."."""
    if counts.newest_at is None:
        return "Nothing has happened yet."
    loud = [plural(n, word) for n, word in ((counts.errors, "error"), (counts.warnings, "warning")) if n]
    among = f"{' and '.join(loud)} among them" if loud else "no error or warning among them"
    return f"{plural(counts.total, 'event')}, {among}; the newest {duration(max(0.0, now - counts.newest_at))} ago."


def read_events(run: RunDir, wanted: EventFilter, *, limit: int, offset: int = 0) -> EventPage:
    """One page. Empty where the run was never started. Raises RunDirError."""
    with reading(run.state) as con:
        if con is None or not has_table(con, "events"):
            return EventPage((), 0, ())
        con.execute("BEGIN")  # the total belongs to the page
        subjects = tuple(row[0] for row in con.execute("SELECT DISTINCT subject FROM events ORDER BY subject"))
        (total,) = con.execute(f"SELECT count(*) FROM events {_WHERE}", _bounds(wanted)).fetchone()
        events = _select(con, wanted, limit, offset)
        con.execute("COMMIT")
    return EventPage(events, total, subjects)


def last_event(run: RunDir, kind: str, subject: str) -> EventView | None:
    """The newest event of a kind and subject; None without any. Raises RunDirError."""
    with reading(run.state) as con:
        if con is None or not has_table(con, "events"):
            return None
        query = f"SELECT {_COLUMNS} FROM events WHERE kind = ? AND subject = ? ORDER BY id DESC LIMIT 1"
        row = con.execute(query, (kind, subject)).fetchone()
    return None if row is None else EventView(*row)


def events_csv(run: RunDir, wanted: EventFilter) -> bytes:
    """All that the filter lets through (at most CSV_ROWS, the newest), newest first, times in UTC. Raises RunDirError."""
    out = io.StringIO(newline="")
    writer = csv.writer(out)
    writer.writerow(("time", "severity", "subject", "kind", "who", "message"))
    for event in read_events(run, wanted, limit=CSV_ROWS).events:
        cells = (moment(event.at), event.severity, event.subject, event.kind, event.who, event.message)
        writer.writerow([csv_cell(text) for text in cells])
    return out.getvalue().encode("utf-8-sig")  # with a mark, so that spreadsheets read it as UTF-8


def _select(con: sqlite3.Connection, wanted: EventFilter, limit: int, offset: int) -> tuple[EventView, ...]:
    query = f"SELECT {_COLUMNS} FROM events {_WHERE} ORDER BY id DESC LIMIT :limit OFFSET :offset"
    rows = con.execute(query, {**_bounds(wanted), "limit": limit, "offset": offset})
    return tuple(EventView(*row) for row in rows)


def _bounds(wanted: EventFilter) -> dict[str, str]:
    severities = ",".join(wanted.severities)
    text = wanted.text.strip().encode("utf-8", "replace").decode()
    return {"severities": f",{severities}," if severities else "", "subject": wanted.subject or "", "text": text}
