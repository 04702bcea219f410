"""Sealing: when it happens, what it writes, and what a full disk does to it."""

from __future__ import annotations

import asyncio
import hashlib
import os
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import duckdb
import pyarrow.parquet as pq
import pytest

from backend.job import shard_file
from backend.job.ledger import Ledger, LedgerError
from backend.job.sealing import RETRY_AFTER_S, Sealer
from backend.rows import row_from_record
from backend.run_dir import RunDir, open_ledger
from tests.job.ledger_use import append_all, durable_rows, files_no_longer_than
from tests.sample_rows import BASE_AT, make_row


def manifest(run: RunDir) -> list[dict[str, Any]]:
    with closing(open_ledger(run, read_only=True)) as con:
        return [dict(row) for row in con.execute("SELECT * FROM sealed_shards ORDER BY dataset, number")]


def stored_count(run: RunDir) -> int:
    with closing(open_ledger(run, read_only=True)) as con:
        count: int = con.execute("SELECT count(*) FROM stored_rows").fetchone()[0]
        return count


async def test_a_dataset_is_due_by_rows_or_by_age_or_by_bytes(ledger: Ledger) -> None:
    await append_all(ledger, make_row(0), make_row(1))
    now = BASE_AT + 2
    assert not Sealer(ledger, shard_rows=3, shard_seconds=900).is_due("B1", now)
    assert Sealer(ledger, shard_rows=2, shard_seconds=900).is_due("B1", now)
    assert Sealer(ledger, shard_rows=3, shard_seconds=900).is_due("B1", BASE_AT + 1 + 900)
    assert Sealer(ledger, shard_rows=3, shard_seconds=900, shard_bytes=50).is_due("B1", now)
    assert not Sealer(ledger, shard_rows=0, shard_seconds=0).is_due("empty", now)


async def test_the_manifest_tells_what_the_shard_holds(run: RunDir, ledger: Ledger) -> None:
    rows = [make_row(n, reasoning_tokens=1) for n in range(3)]
    rows += [make_row(3, finish_reason="length"), make_row(4, finish_reason="rejected", prompt_tokens=None)]
    await append_all(ledger, *rows)
    sealed = await Sealer(ledger, shard_rows=10, shard_seconds=900).seal("B1")
    path = run.shards / "B1" / "00000001.parquet"
    assert (sealed.shards, sealed.rows, sealed.problem) == ((path,), 5, None)
    [entry] = manifest(run)
    assert entry.pop("sealed_at") == pytest.approx(time.time(), abs=60)
    assert entry == {
        "dataset": "B1", "number": 1, "path": "shards/B1/00000001.parquet", "rows": 5, "prompt_tokens": 12,
        "completion_tokens": 20, "reasoning_tokens": 3, "rejected": 1, "truncated": 1, "bytes": path.stat().st_size,
        "sha256": hashlib.sha256(path.read_bytes()).hexdigest(), "first_finished_at": rows[0].finished_at,
        "last_finished_at": rows[4].finished_at,
    }  # fmt: skip
    assert [row_from_record(record) for record in pq.read_table(path).to_pylist()] == rows
    assert durable_rows(run) == []
    assert stored_count(run) == 0
    assert ledger.open_rows("B1") == (0, 0, None)


async def test_a_seal_takes_one_datasets_rows_in_shards_of_the_wanted_size(run: RunDir, ledger: Ledger) -> None:
    for number in range(25):
        await append_all(ledger, make_row(number), make_row(number, dataset="B2"))
    sealer = Sealer(ledger, shard_rows=10, shard_seconds=900)
    assert (await sealer.seal_due(BASE_AT)).rows == 20  # one shard of each
    assert [ledger.open_rows(name).rows for name in ("B1", "B2")] == [15, 15]
    assert (await sealer.seal("B1")).rows == 15
    assert [(entry["dataset"], entry["number"], entry["rows"]) for entry in manifest(run)] == [
        ("B1", 1, 10), ("B1", 2, 10), ("B1", 3, 5), ("B2", 1, 10),
    ]  # fmt: skip
    assert {row.dataset for row in durable_rows(run)} == {"B2"}
    oldest_at = ledger.open_rows("B2").oldest_at
    assert oldest_at == make_row(10).finished_at


async def test_rows_after_a_seal_are_open_again_though_the_table_was_empty(run: RunDir, ledger: Ledger) -> None:
    sealer = Sealer(ledger, shard_rows=10, shard_seconds=900)
    for number in range(3):
        await append_all(ledger, make_row(number))
        assert durable_rows(run) == [make_row(number)]
        await sealer.seal("B1")
        assert durable_rows(run) == []
    assert [entry["number"] for entry in manifest(run)] == [1, 2, 3]


async def test_a_shard_is_cut_by_bytes_and_into_row_groups(
    run: RunDir, ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shard_file, "ROW_GROUP_ROWS", 20)
    monkeypatch.setattr(shard_file, "CHUNK_ROWS", 10)
    await append_all(ledger, *(make_row(n, raw_text="x" * 1000) for n in range(100)))
    assert (await Sealer(ledger, shard_rows=1000, shard_seconds=900, shard_bytes=50_000).seal("B1")).rows == 100
    entries = manifest(run)
    assert [entry["rows"] for entry in entries] == [50, 50]
    assert pq.ParquetFile(run.root / entries[0]["path"]).num_row_groups == 3


async def test_rows_that_arrive_while_a_shard_is_written_stay_open(run: RunDir, ledger: Ledger) -> None:
    written, go_on = threading.Event(), threading.Event()

    def wait(step: str) -> None:
        if step == "renamed":
            written.set()
            assert go_on.wait(30)

    await append_all(ledger, make_row(0))
    task = asyncio.ensure_future(Sealer(ledger, shard_rows=10, shard_seconds=900, on_step=wait).seal("B1"))
    assert await asyncio.to_thread(written.wait, 30)
    await asyncio.wait_for(ledger.append(make_row(1)), 30)  # a commit does not wait for the seal
    go_on.set()
    assert (await task).rows == 1
    assert durable_rows(run) == [make_row(1)]
    assert ledger.totals("B1").samples == 2


async def test_a_caller_that_is_cancelled_leaves_a_whole_seal(run: RunDir, ledger: Ledger) -> None:
    written, go_on = threading.Event(), threading.Event()

    def wait(step: str) -> None:
        if step == "tmp_written":
            written.set()
            assert go_on.wait(30)

    await append_all(ledger, make_row(0))
    sealer = Sealer(ledger, shard_rows=10, shard_seconds=900, on_step=wait)
    task = asyncio.ensure_future(sealer.seal("B1"))
    assert await asyncio.to_thread(written.wait, 30)
    task.cancel()
    go_on.set()
    assert (await sealer.seal("B1")).rows in (0, 1)  # waits for the one that goes on
    assert [entry["rows"] for entry in manifest(run)] == [1]
    assert durable_rows(run) == []


async def test_a_full_disk_is_said_once_in_a_while_and_the_rows_stay_open(run: RunDir, ledger: Ledger) -> None:
    noise = os.urandom(300_000).hex()
    await append_all(ledger, make_row(0, raw_text=noise, answer=None))
    sealer = Sealer(ledger, shard_rows=1, shard_seconds=900)
    now = BASE_AT
    with files_no_longer_than(100_000):
        sealed = await sealer.seal_due(now)
        assert sealed.rows == 0
        assert sealed.problem
        assert "open rows could not be sealed, they stay in the ledger" in sealed.problem
        assert not sealer.is_due("B1", now + RETRY_AFTER_S - 1)
    assert [path for path in run.shards.rglob("*") if path.is_file()] == []
    assert [row.raw_text for row in durable_rows(run)] == [noise]
    assert (await sealer.seal_due(now + RETRY_AFTER_S)).rows == 1
    assert manifest(run)[0]["number"] == 1


async def test_a_move_that_fails_leaves_no_file_behind(run: RunDir, ledger: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    await append_all(ledger, make_row(0))
    sealer = Sealer(ledger, shard_rows=1, shard_seconds=900)
    with closing(open_ledger(run)) as con:
        con.execute("CREATE TRIGGER refuse BEFORE INSERT ON sealed_shards BEGIN SELECT raise(ABORT, 'not today'); END")
        problem = (await sealer.seal("B1")).problem
        con.execute("DROP TRIGGER refuse")
    assert problem
    assert "not today" in problem
    assert [path for path in run.shards.rglob("*") if path.is_file()] == []
    assert (await sealer.seal("B1")).rows == 1


async def test_rows_that_would_be_lost_between_file_and_ledger_stop_the_move(run: RunDir, ledger: Ledger) -> None:
    await append_all(ledger, make_row(0), make_row(1))
    entry = {"dataset": "B1", "rows": 1, "path": "shards/B1/00000001.parquet"}
    with pytest.raises(LedgerError, match="holds 1 rows, but 2 rows would leave"):
        await ledger.move_to_shard(entry, 2)
    assert len(durable_rows(run)) == 2


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 4 MB; only root can make one."""
    place = tmp_path / "small"
    place.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=4m", "tmpfs", str(place)], capture_output=True, text=True, check=False
    )
    if mounted.returncode:
        pytest.skip(f"a tmpfs cannot be mounted here: {mounted.stderr.strip()}")
    yield place
    subprocess.run(["umount", "-l", str(place)], check=True)


async def test_on_a_disk_that_really_is_full_nothing_is_lost_and_work_goes_on_when_there_is_room(small_disk: Path) -> None:
    run = RunDir(small_disk / "run")
    run.create_folders()
    ledger = Ledger.open(run)
    ballast = small_disk / "ballast"
    sealer = Sealer(ledger, shard_rows=10, shard_seconds=900)
    await append_all(ledger, *(make_row(n, raw_text=os.urandom(10_000).hex()) for n in range(30)))
    ballast.write_bytes(bytes(os.statvfs(small_disk).f_bavail * os.statvfs(small_disk).f_frsize))
    problem = (await sealer.seal_due(BASE_AT)).problem
    assert problem
    assert "the disk is full" in problem
    rows = [make_row(n, raw_text="x" * 400_000) for n in range(30, 33)]
    results = await asyncio.gather(*(ledger.append(row) for row in rows), return_exceptions=True)
    refused = [row for row, result in zip(rows, results, strict=True) if result]
    assert refused
    assert "the disk is full" in str(next(result for result in results if result))
    ballast.unlink()
    for row in refused:
        await ledger.append(row)
    assert (await sealer.seal("B1")).rows == 33
    assert ledger.totals("B1").samples == 33
    await ledger.close()


async def test_duckdb_reads_a_sealed_shard_and_the_open_rows_beside_it(run: RunDir, ledger: Ledger) -> None:
    await append_all(ledger, *(make_row(n) for n in range(10)))
    await Sealer(ledger, shard_rows=10, shard_seconds=900).seal_due(BASE_AT)
    await append_all(ledger, make_row(10))
    with duckdb.connect() as con:
        query = "SELECT count(*), sum(completion_tokens), min(epoch_us(finished_at)), sum(len(output_ids)) FROM read_parquet(?)"
        found = con.execute(query, [str(run.root / manifest(run)[0]["path"])]).fetchone()
    assert found == (10, 40, round((BASE_AT + 1) * 1e6), 40)
    assert durable_rows(run) == [make_row(10)]
