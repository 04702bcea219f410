"""Giving up shards that are lost for good."""

from __future__ import annotations

import fcntl
import subprocess
import sys
from pathlib import Path

import pytest

from backend.job.give_up import give_up_lost_shards
from backend.job.ledger import DatasetTotals, Ledger, LedgerError
from backend.job.sealing import Sealer
from backend.records import Outcome
from backend.run_dir import RunDir, RunDirError
from tests.job.ledger_use import append_all
from tests.sample_rows import make_row


@pytest.fixture
async def run(tmp_path: Path) -> RunDir:
    """A run of two shards of two samples each; one sample of each was superseded, one of those was made again."""
    run = RunDir(tmp_path / "run")
    run.create_folders()
    ledger = Ledger.open(run)
    await append_all(ledger, *(make_row(n, finish_reason="length" if n % 2 else "stop") for n in range(4)))
    await Sealer(ledger, shard_rows=2, shard_seconds=900).seal("B1")
    await ledger.supersede("B1", list(ledger.outcome_keys("B1", [Outcome.TRUNCATED])), "redo")
    await append_all(ledger, make_row(1, attempt=2))
    await ledger.close()
    return run


@pytest.mark.parametrize("harm", ["remove", "cut"])
async def test_the_samples_of_a_lost_shard_are_generated_again_and_the_others_stay(run: RunDir, harm: str) -> None:
    lost = run.shard("B1", 1)
    if harm == "cut":
        lost.write_bytes(lost.read_bytes()[:-9])
    else:
        lost.unlink()
    with pytest.raises(LedgerError, match="give_up"):
        Ledger.open(run)
    [words] = give_up_lost_shards(run)
    assert str(lost) in words
    ledger = Ledger.open(run)
    assert ledger.totals("B1") == DatasetTotals(samples=2, completion_tokens=8, prompt_tokens=6)
    assert [ledger.is_done("B1", f"s00000{n}") for n in range(4)] == [False, True, True, False]
    await append_all(ledger, make_row(0), make_row(3, attempt=ledger.next_attempt("B1", "s000003")))
    assert (await Sealer(ledger, shard_rows=9, shard_seconds=900).seal("B1")).rows == 3
    assert ledger.totals("B1").samples == 4
    await ledger.close()
    ledger = Ledger.open(run)
    assert ledger.totals("B1").samples == 4
    await ledger.close()


def test_without_a_loss_nothing_is_given_up(run: RunDir) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "backend.job.give_up", str(run.root)], capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.returncode, done.stdout) == (0, "No shard is lost.\n")


def test_while_a_supervisor_works_nothing_is_given_up(run: RunDir) -> None:
    run.shard("B1", 1).unlink()
    with run.lock.open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        with pytest.raises(RunDirError, match="Stop it first"):
            give_up_lost_shards(run)


def test_a_run_that_never_started_is_said_to_be_one(tmp_path: Path) -> None:
    with pytest.raises(RunDirError, match="never started"):
        give_up_lost_shards(RunDir(tmp_path))
