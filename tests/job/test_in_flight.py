"""The journal of requests in flight."""

from __future__ import annotations

import logging
import time
from pathlib import Path

import pytest

from backend.job.in_flight import InFlightJournal, read_in_flight


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "in_flight.journal"


def test_what_was_sent_and_not_answered_is_known_after_a_kill(path: Path) -> None:
    journal = InFlightJournal(path)
    for number in range(5):
        journal.add(f"r{number}", str(number % 2))
    journal.remove("r1")
    journal.remove("never sent")
    assert read_in_flight(path) == {"r0": "0", "r2": "0", "r3": "1", "r4": "0"} == journal.requests()  # nothing was closed
    journal.close()


@pytest.mark.parametrize("torn", ["+ r9 0", "+ r9", "-", "- r0", "+"])
def test_a_torn_tail_is_ignored(path: Path, torn: str) -> None:
    path.write_text("+ r0 a\n+ r1 b\n" + torn)
    assert read_in_flight(path) == {"r0": "a", "r1": "b"}


def test_junk_in_the_middle_costs_only_its_own_line(path: Path) -> None:
    path.write_bytes(b"+ r0 a\n\xff\xfe\n\n+ r1 b c\n- r0 x\n+ r2 b\n")
    assert read_in_flight(path) == {"r0": "a", "r2": "b"}


def test_a_missing_journal_is_an_empty_one(path: Path) -> None:
    assert read_in_flight(path) == {}


def test_a_new_journal_goes_on_with_the_old_ones_requests(path: Path) -> None:
    path.write_text("+ r0 a\n+ r1 b\n+ torn")
    with InFlightJournal(path) as journal:
        assert len(journal) == 2
        journal.add("r2", "a")
        journal.remove("r0")
    assert read_in_flight(path) == {"r1": "b", "r2": "a"}


def test_the_journal_stays_small_and_right_through_compactions(path: Path) -> None:
    with InFlightJournal(path, compact_at_bytes=500) as journal:
        for number in range(1000):
            journal.add(f"r{number}", "0")
            if number >= 10:
                journal.remove(f"r{number - 10}")
            assert path.stat().st_size < 700
        assert read_in_flight(path) == journal.requests() == {f"r{number}": "0" for number in range(990, 1000)}
    assert list(path.parent.iterdir()) == [path]


def test_a_disk_that_refuses_is_logged_once_and_the_journal_is_made_whole_later(
    path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> int:
        raise OSError(28, "No space left on device")

    with InFlightJournal(path) as journal, caplog.at_level(logging.WARNING):
        journal.add("r0", "a")
        with monkeypatch.context() as full_disk:
            full_disk.setattr("backend.job.in_flight.os.write", refuse)
            full_disk.setattr(Path, "write_bytes", refuse)
            journal.add("r1", "a")
            journal.remove("r0")
        assert read_in_flight(path) == {"r0": "a"}
        journal.add("r2", "b")
        assert read_in_flight(path) == {"r1": "a", "r2": "b"}
        assert sum("No space left" in record.message for record in caplog.records) == 1


def test_a_call_costs_microseconds(path: Path) -> None:
    best_us = 1e9
    with InFlightJournal(path) as journal:
        for _ in range(5):  # the best of five: this machine may be busy
            started = time.perf_counter()
            for number in range(1000):
                journal.add(f"{number:032x}", "0")
                journal.remove(f"{number:032x}")
            best_us = min(best_us, (time.perf_counter() - started) / 2000 * 1e6)
    assert best_us < 50
