"""The page of events: page by page, filtered, and what is left of a page that the filter takes away."""

from __future__ import annotations

import time
from contextlib import closing
from pathlib import Path

import pytest

from backend.run_dir import RunDir, open_state
from tests.made_run import make_run, write_event
from tests.pages.shown import open_page, words


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> RunDir:
    monkeypatch.setenv("HEADWAY_RUNS", str(tmp_path / "runs"))
    run = make_run(tmp_path)
    write_event(run, "the very first", time.time() - 500, severity="error")
    with closing(open_state(run)) as con:
        con.executemany(
            "INSERT INTO events (at, kind, subject, severity, message, who, details)"
            " VALUES (?, 'run.told', 'run', 'info', ?, 'page:ann', '{}')",
            [(time.time() - 400 + i, f"told {i:03d}") for i in range(120)],
        )
    return run


def test_the_newest_fifty_come_first(run: RunDir) -> None:
    shown = words(open_page("events.py", run=run.name))
    assert "told 119" in shown
    assert "told 070" in shown
    assert "told 069" not in shown
    assert "121 events" in shown


def test_a_later_page_goes_back_in_time(run: RunDir) -> None:
    at = open_page("events.py", run=run.name)
    at.session_state["events_page"] = 3
    at.run()
    assert not at.exception
    assert "the very first" in words(at)
    assert "told 119" not in words(at)


def test_a_filter_that_leaves_fewer_pages_shows_the_first(run: RunDir) -> None:
    at = open_page("events.py", run=run.name)
    at.session_state["events_page"] = 3
    at.run()
    at.selectbox("events_loudness").select("Errors").run()
    assert not at.exception
    assert "the very first" in words(at)
    assert "1 event" in words(at)


def test_what_matches_nothing_says_so(run: RunDir) -> None:
    at = open_page("events.py", run=run.name)
    at.text_input("events_text").set_value("no such words").run()
    assert "No event matches." in words(at)


def test_times_are_in_the_viewers_zone_with_utc_on_hover(run: RunDir, monkeypatch: pytest.MonkeyPatch) -> None:
    from datetime import UTC, datetime
    from zoneinfo import ZoneInfo

    monkeypatch.setattr("pages.clock.zone", lambda: ZoneInfo("Asia/Tokyo"))
    shown = words(open_page("events.py", run=run.name))
    with closing(open_state(run, read_only=True)) as con:
        (at,) = con.execute("SELECT max(at) FROM events").fetchone()
    assert f'title="{datetime.fromtimestamp(at, UTC):%Y-%m-%d %H:%M:%S} UTC"' in shown
    assert f"{datetime.fromtimestamp(at, ZoneInfo('Asia/Tokyo')):%H:%M:%S}</time>" in shown
