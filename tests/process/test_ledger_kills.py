"""SIGKILL while samples are appended and sealed: each is in exactly one place, none is lost, none twice."""

from __future__ import annotations

import random
import subprocess
import sys
import time
from collections import Counter
from contextlib import closing
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from backend.job.ledger import Ledger
from backend.run_dir import RunDir, open_ledger
from tests.process.ledger_worker import DATASETS
from tests.sample_rows import make_row

ROOT = Path(__file__).parents[2]


@pytest.fixture
def run(tmp_path: Path) -> RunDir:
    run = RunDir(tmp_path / "run")
    run.create_folders()
    return run


def start_worker(run: RunDir, samples: int, *step: str) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "tests.process.ledger_worker", str(run.root), str(samples), *step]
    return subprocess.Popen(command, cwd=ROOT)


def places(run: RunDir) -> Counter[tuple[str, str]]:
    """In how many places each sample is, by the manifest and the open rows, as a report reads them."""
    found: Counter[tuple[str, str]] = Counter()
    with closing(open_ledger(run, read_only=True)) as con:
        found.update((row[0], row[1]) for row in con.execute("SELECT dataset, sample_id FROM open_rows"))
        for (path,) in con.execute("SELECT path FROM sealed_shards").fetchall():
            table = pq.read_table(run.root / path, columns=["dataset", "sample_id"])
            found.update((record["dataset"], record["sample_id"]) for record in table.to_pylist())
    return found


def check_after_a_kill(run: RunDir) -> int:
    """Asserts what must hold after any kill; the number of samples."""
    before_repair = places(run)
    acknowledged = (run.root / "acknowledged.txt").read_text().split("\n")[:-1]
    assert set(before_repair.values()) <= {1}
    assert {tuple(line.split(" ")) for line in acknowledged} <= set(before_repair)
    return len(before_repair)


async def check_after_reopening(run: RunDir) -> None:
    """Asserts that a ledger opened anew agrees with what is there, and that nothing else lies around."""
    found = places(run)
    ledger = Ledger.open(run)
    assert places(run) == found
    for dataset in DATASETS:
        numbers = [int(sample_id[1:]) for name, sample_id in found if name == dataset]
        assert ledger.totals(dataset).samples == len(numbers)
        assert ledger.totals(dataset).completion_tokens == sum(number + 1 for number in numbers)
        assert all(ledger.is_done(dataset, make_row(number).sample_id) for number in numbers)
    await ledger.close()
    with closing(open_ledger(run, read_only=True)) as con:
        named = {run.root / path for (path,) in con.execute("SELECT path FROM sealed_shards")}
        stored = con.execute("SELECT (SELECT count(*) FROM stored_rows) - (SELECT count(*) FROM open_rows)").fetchone()[0]
    assert {path for path in run.shards.rglob("*") if path.is_file()} == named
    assert stored == 0  # no row keeps its space after it was sealed


def check_complete(run: RunDir, samples: int) -> None:
    expected = {(dataset, make_row(number).sample_id) for dataset in DATASETS for number in range(samples)}
    assert places(run) == Counter(expected)


@pytest.mark.parametrize("step", ["tmp_written", "renamed", "moved", "deleting"])
async def test_killed_at_any_step_of_a_seal_every_sample_is_in_exactly_one_place(run: RunDir, step: str) -> None:
    assert start_worker(run, 150, step).wait(60) == -9
    assert check_after_a_kill(run) > 0
    await check_after_reopening(run)
    assert start_worker(run, 150).wait(60) == 0
    check_complete(run, 150)


@pytest.mark.drill
async def test_killed_again_and_again_at_random_the_run_completes_exactly(run: RunDir) -> None:
    seed = time.time_ns() % 1_000_000
    print(f"seed {seed}")
    moments = random.Random(seed)
    samples, kills = 1500, 0
    for _ in range(40):
        worker = start_worker(run, samples)
        deadline = time.monotonic() + 30
        size_before = acknowledged_bytes(run)
        while acknowledged_bytes(run) == size_before and worker.poll() is None and time.monotonic() < deadline:
            time.sleep(0.005)  # not before it works
        time.sleep(moments.uniform(0, 0.4))
        worker.kill()
        if worker.wait(30) == 0:
            break
        kills += 1
        check_after_a_kill(run)
        await check_after_reopening(run)
    assert kills >= 3
    assert start_worker(run, samples).wait(60) == 0
    check_complete(run, samples)


def acknowledged_bytes(run: RunDir) -> int:
    path = run.root / "acknowledged.txt"
    return path.stat().st_size if path.exists() else 0
