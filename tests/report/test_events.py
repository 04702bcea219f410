"""Events: filtered, page by page, newest first, and as CSV that no spreadsheet runs."""

from __future__ import annotations

import csv
import io
from contextlib import closing
from pathlib import Path

import pytest

from backend.records import Severity
from backend.report.events import (
    EventCounts,
    EventFilter,
    events_csv,
    events_headline,
    last_event,
    read_counts,
    read_events,
)
from backend.run_dir import RunDir, open_state
from tests.made_run import make_run


@pytest.fixture
def run(tmp_path: Path) -> RunDir:
    run = make_run(tmp_path)
    told = [
        ("run.started", "run", "info", "Supervisor started.", "supervisor"),
        ("dataset.paused", "dataset:alpha", "info", "alpha: running → paused", "page:ann"),
        ("engine.died", "engine:0", "error", "Replica 0 died: CUDA out of memory", "supervisor"),
        ("dataset.bad_lines", "dataset:alpha", "warning", '=HYPERLINK("http://evil.example")', "supervisor"),
        ("dataset.bad_lines", "dataset:alpha", "warning", "50% of\nthe_lines\x1b[31m", "supervisor"),
    ]
    with closing(open_state(run)) as con:
        con.executemany(
            "INSERT INTO events (at, kind, subject, severity, message, who, details) VALUES (?, ?, ?, ?, ?, ?, '{}')",
            [(1000.0 + i, *event) for i, event in enumerate(told)],
        )
    return run


def messages(run: RunDir, wanted: EventFilter, **bounds: int) -> list[str]:
    return [event.message for event in read_events(run, wanted, **({"limit": 50} | bounds)).events]


def test_a_run_that_was_never_started_has_none(tmp_path: Path) -> None:
    page = read_events(make_run(tmp_path), EventFilter(), limit=10)
    assert (page.events, page.total, page.subjects) == ((), 0, ())


def test_the_newest_comes_first_page_by_page(run: RunDir) -> None:
    assert [event.at for event in read_events(run, EventFilter(), limit=2).events] == [1004.0, 1003.0]
    last = read_events(run, EventFilter(), limit=2, offset=4)
    assert [event.at for event in last.events] == [1000.0]
    assert last.total == 5
    assert last.subjects == ("dataset:alpha", "engine:0", "run")


def test_severity_subject_and_text_filter_together(run: RunDir) -> None:
    assert len(messages(run, EventFilter(severities=(Severity.WARNING, Severity.ERROR)))) == 3
    assert len(messages(run, EventFilter(severities=(Severity.ERROR,)))) == 1
    assert len(messages(run, EventFilter(subject="dataset:alpha"))) == 3
    assert messages(run, EventFilter(subject="dataset:alpha", text="PAUSED")) == ["alpha: running → paused"]
    assert messages(run, EventFilter(text="page:ann")) == ["alpha: running → paused"]
    assert messages(run, EventFilter(text="engine.died")) == ["Replica 0 died: CUDA out of memory"]


@pytest.mark.parametrize(
    ("text", "found"), [("50%", 1), ("%", 1), ("the_lines", 1), ("the_", 1), ("'", 0), ("a' OR 1=1 --", 0)]
)
def test_signs_of_the_query_language_are_plain_text(run: RunDir, text: str, found: int) -> None:
    assert len(messages(run, EventFilter(text=text))) == found


def test_a_lone_surrogate_finds_nothing_and_breaks_nothing(run: RunDir) -> None:
    assert messages(run, EventFilter(text="\ud800")) == []


def test_the_newest_of_a_kind_is_told(run: RunDir) -> None:
    event = last_event(run, "dataset.bad_lines", "dataset:alpha")
    assert event is not None
    assert event.message.startswith("50%")
    assert last_event(run, "dataset.bad_lines", "dataset:beta") is None


def test_the_csv_holds_every_event_and_no_formula(run: RunDir) -> None:
    text = events_csv(run, EventFilter()).decode("utf-8-sig")
    head, *rows = csv.reader(io.StringIO(text, newline=""))
    assert head == ["time", "severity", "subject", "kind", "who", "message"]
    assert len(rows) == 5
    assert rows[0] == [
        "1970-01-01 00:16:44 UTC", "warning", "dataset:alpha", "dataset.bad_lines", "supervisor", "50% of\nthe_lines\\x1b[31m"
    ]  # fmt: skip
    assert rows[1][-1] == """'=HYPERLINK("http://evil.example")"""


def test_all_that_happened_is_told_in_a_sentence(run: RunDir) -> None:
    told = "5 events, 1 error and 2 warnings among them; the newest 1 min 00 s ago."
    assert events_headline(read_counts(run), 1064.0) == told
    assert events_headline(EventCounts(1, newest_at=7.0), 3.0) == "1 event, no error or warning among them; the newest 0 s ago."


def test_nothing_that_happened_is_told_as_well(tmp_path: Path) -> None:
    assert events_headline(read_counts(make_run(tmp_path)), 9.0) == "Nothing has happened yet."
