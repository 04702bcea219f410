"""Questions about finished samples: shards of the manifest, open rows, nothing else, and each once."""

from __future__ import annotations

import hashlib
import os
import shutil
import threading
import time
from contextlib import closing
from pathlib import Path

import pytest

from backend.report import database
from backend.report.connection import connect
from backend.report.database import run_query, skipped_shards
from backend.report.texts import open_with_texts
from backend.rows import COLUMNS, record_from_row
from backend.run_dir import RunDir, RunDirError, open_ledger
from tests.finished_samples import add_open, replace_row, sample, seal
from tests.made_run import make_run


@pytest.fixture
def run(tmp_path: Path) -> RunDir:
    return make_run(tmp_path)


def count(run: RunDir, dataset: str = "alpha") -> int:
    return int(run_query(run, "dataset_totals", dataset=dataset)[0]["samples"])


def test_a_run_that_was_never_started_has_no_samples(run: RunDir) -> None:
    assert count(run) == 0
    assert skipped_shards(run) == ()


def test_sealed_and_open_samples_are_counted_once_each(run: RunDir) -> None:
    add_open(run, [sample(i) for i in range(3)])
    assert count(run) == 3
    seal(run, "alpha", 1)  # the rows still lie in the ledger, as they do until their space is freed
    add_open(run, [sample(3), sample(4), sample(0, dataset="beta")])
    assert count(run) == 5
    assert count(run, "beta") == 1


def test_samples_that_come_between_two_questions_are_counted(run: RunDir) -> None:
    for number in range(1, 4):
        add_open(run, [sample(10 * number), sample(10 * number + 1)])
        assert count(run) == 2 * number
        seal(run, "alpha", number)
        assert count(run) == 2 * number


def test_only_what_is_new_is_read_again(run: RunDir, monkeypatch: pytest.MonkeyPatch) -> None:
    add_open(run, [sample(0)])
    seal(run, "alpha", 1)
    assert count(run) == 1
    monkeypatch.setattr(database.Database, "rows_in", lambda self, shards: "no_rows")
    add_open(run, [sample(1)])
    assert count(run) == 2  # the shard's row was not read again: as `_rows_in` says now it has none
    read: list[object] = []
    monkeypatch.setattr(database, "arrow_table", read.append)
    assert count(run) == 2
    assert read == []


def test_replaced_samples_are_left_out_sealed_or_open(run: RunDir) -> None:
    add_open(run, [sample(0), sample(1)])
    seal(run, "alpha", 1)
    add_open(run, [sample(0, attempt=2, completion_tokens=7), sample(2)])
    assert count(run) == 4
    replace_row(run, sample(0))
    replace_row(run, sample(2))
    (totals,) = run_query(run, "dataset_totals", dataset="alpha")
    assert (totals["samples"], totals["completion_tokens"]) == (2, 4 + 7)


def test_files_that_the_manifest_does_not_name_are_no_samples(run: RunDir) -> None:
    add_open(run, [sample(0)])
    seal(run, "alpha", 1)
    shutil.copy(run.shard("alpha", 1), run.shard("alpha", 2))
    (run.shards / "alpha" / "junk.parquet").write_text("no Parquet")
    (run.shards / "alpha" / "00000003.parquet.tmp").write_bytes(b"PAR1")
    assert count(run) == 1
    assert skipped_shards(run) == ()


def test_a_shard_cut_short_is_named_and_skipped_until_it_is_mended(run: RunDir) -> None:
    for number in (1, 2):
        add_open(run, [sample(10 * number + i) for i in range(5)])
        seal(run, "alpha", number)
    whole = run.shard("alpha", 1).read_bytes()
    run.shard("alpha", 1).write_bytes(whole[: len(whole) // 2])
    assert count(run) == 5
    (sentence,) = skipped_shards(run)
    assert "shards/alpha/00000001.parquet was cut short" in sentence
    assert "give_up" in sentence
    run.shard("alpha", 1).write_bytes(whole)
    assert count(run) == 10
    assert skipped_shards(run) == ()


def test_an_edited_shard_of_the_same_size_is_told_by_its_checksum(run: RunDir) -> None:
    for number in (1, 2):
        add_open(run, [sample(10 * number + i) for i in range(5)])
        seal(run, "alpha", number)
    assert count(run) == 10
    path = run.shard("alpha", 1)
    whole = path.read_bytes()
    path.write_bytes(whole[:100] + bytes([whole[100] ^ 1]) + whole[101:])
    later = time.time() + 60  # it was edited long after it was sealed
    os.utime(path, (later, later))
    assert count(run) == 5
    (sentence,) = skipped_shards(run)
    assert "shards/alpha/00000001.parquet was changed after it was sealed (its checksum differs)" in sentence


def test_a_copied_shard_is_read_once_its_checksum_is_right(run: RunDir) -> None:
    add_open(run, [sample(0)])
    seal(run, "alpha", 1)
    later = time.time() + 60
    os.utime(run.shard("alpha", 1), (later, later))
    assert count(run) == 1
    assert skipped_shards(run) == ()


def test_a_shard_that_has_grown_is_named(run: RunDir) -> None:
    add_open(run, [sample(0)])
    seal(run, "alpha", 1)
    with run.shard("alpha", 1).open("ab") as file:
        file.write(b"more")
    assert count(run) == 0
    assert "has grown since it was sealed" in skipped_shards(run)[0]


def test_a_shard_that_was_sealed_unreadable_is_named(run: RunDir) -> None:
    for number in (1, 2):
        add_open(run, [sample(10 * number)])
        seal(run, "alpha", number)
    junk = b"PAR1 no Parquet at all PAR1"
    run.shard("alpha", 1).write_bytes(junk)
    with closing(open_ledger(run)) as con:
        con.execute(
            "UPDATE sealed_shards SET bytes = ?, sha256 = ? WHERE number = 1", (len(junk), hashlib.sha256(junk).hexdigest())
        )
    assert count(run) == 1
    assert "shards/alpha/00000001.parquet cannot be read (" in skipped_shards(run)[0]


def test_rows_that_find_no_room_in_memory_are_read_from_their_files(run: RunDir) -> None:
    for number in range(1, 4):
        add_open(run, [sample(10 * number + i) for i in range(4)])
        seal(run, "alpha", number)
    add_open(run, [sample(99)])
    replace_row(run, sample(10))
    replace_row(run, sample(30))
    for rows_kept in (0, 4, 8, 12):
        small = database.Database(run, rows_kept=rows_kept)
        small.refresh()
        with small.cursor() as cursor:
            (kept,) = cursor.execute("SELECT count(*) FROM kept").fetchone() or ()
            places = sorted(place for (place,) in cursor.execute("SELECT position FROM samples").fetchall())
            stored = sorted(place for (place,) in cursor.execute("SELECT position FROM stored").fetchall())
        assert kept <= rows_kept
        assert places == stored == [11, 12, 13, 20, 21, 22, 23, 31, 32, 33, 99]


def test_a_missing_shard_is_named(run: RunDir) -> None:
    add_open(run, [sample(0)])
    seal(run, "alpha", 1)
    run.shard("alpha", 1).unlink()
    assert count(run) == 0
    (sentence,) = skipped_shards(run)
    assert "shards/alpha/00000001.parquet is missing" in sentence


def test_a_shard_that_was_given_up_is_forgotten(run: RunDir) -> None:
    for number in (1, 2):
        add_open(run, [sample(number)])
        seal(run, "alpha", number)
    assert count(run) == 2
    with closing(open_ledger(run)) as con:
        con.execute("DELETE FROM sealed_shards WHERE number = 1")
    assert count(run) == 1


def test_shards_may_lie_on_another_disk(run: RunDir, tmp_path: Path) -> None:
    elsewhere = tmp_path / "it's elsewhere"
    run.shards.rename(elsewhere)
    run.shards.symlink_to(elsewhere)
    add_open(run, [sample(0)])
    seal(run, "alpha", 1)
    assert count(run) == 1


def test_a_damaged_ledger_is_told_in_words(run: RunDir) -> None:
    run.ledger.write_bytes(b"no database" * 1000)
    with pytest.raises(RunDirError, match="damaged"):
        count(run)


def test_no_other_file_can_be_opened(run: RunDir, tmp_path: Path) -> None:
    import duckdb

    outside = tmp_path / "outside.csv"
    outside.write_text("a,b\n1,2\n")
    for path in (outside, run.config, run.servers / "0.json", run.shards / ".." / "run.toml"):
        with connect(run) as con, pytest.raises(duckdb.Error):
            con.execute(f"SELECT * FROM read_text('{path}')")


def test_many_threads_may_ask_while_samples_come(run: RunDir) -> None:
    seen: list[list[int]] = [[] for _ in range(4)]
    stop = threading.Event()

    def ask(into: list[int]) -> None:
        while not stop.is_set():
            into.append(count(run))

    threads = [threading.Thread(target=ask, args=(into,)) for into in seen]
    for thread in threads:
        thread.start()
    for number in range(1, 6):
        add_open(run, [sample(10 * number + i) for i in range(10)])
        seal(run, "alpha", number)
    stop.set()
    for thread in threads:
        thread.join(20)
    assert count(run) == 50
    assert all(counts == sorted(counts) for counts in seen)  # never fewer, never twice


def test_no_commit_waits_for_a_question(run: RunDir) -> None:
    """The writer here does not wait for a lock at all: it would fail where a reader held one."""
    for number in range(1, 4):
        add_open(run, [sample(10 * number + i) for i in range(10)])
        seal(run, "alpha", number)
    stop, asked = threading.Event(), threading.Event()

    def ask() -> None:
        while not stop.is_set():
            database.Database(run).refresh()
            open_with_texts(run, memory_limit="300MB")
            asked.set()

    thread = threading.Thread(target=ask)
    thread.start()
    try:
        assert asked.wait(60)
        statement = f"INSERT INTO stored_rows ({', '.join(COLUMNS)}) VALUES ({', '.join('?' * len(COLUMNS))})"
        with closing(open_ledger(run)) as con:
            con.execute("PRAGMA busy_timeout = 0")
            for i in range(200):
                con.execute("BEGIN IMMEDIATE")
                con.execute(statement, record_from_row(sample(1000 + i)))
                con.execute("COMMIT")
    finally:
        stop.set()
        thread.join(60)
    assert count(run) == 230


def test_only_the_runs_asked_last_stay_in_memory(tmp_path: Path) -> None:
    for i in range(database.RUNS_KEPT + 2):
        assert count(make_run(tmp_path / str(i))) == 0
    assert len(database._databases) <= database.RUNS_KEPT
