"""Questions about finished samples: shards of the manifest, open rows, nothing else, and each once."""

from __future__ import annotations

import shutil
import threading
from contextlib import closing
from pathlib import Path

import pytest

from backend.report import database
from backend.report.database import run_query, skipped_shards
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
    run.shard("alpha", 1).unlink()  # it would be missed if it were read again
    add_open(run, [sample(1)])
    assert count(run) == 2
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
    assert "shards/alpha/00000001.parquet cannot be read" in sentence
    assert "give_up" in sentence
    run.shard("alpha", 1).write_bytes(whole)
    assert count(run) == 10
    assert skipped_shards(run) == ()


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
    with database.connect(run) as con, pytest.raises(duckdb.Error):
        con.execute(f"SELECT * FROM read_csv('{outside}')")


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


def test_only_the_runs_asked_last_stay_in_memory(tmp_path: Path) -> None:
    for i in range(database.RUNS_KEPT + 2):
        assert count(make_run(tmp_path / str(i))) == 0
    assert len(database._databases) <= database.RUNS_KEPT
