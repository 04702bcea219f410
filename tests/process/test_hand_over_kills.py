"""SIGKILL in the middle of an export and of an adoption: nothing half is left, and the same command makes it whole."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from backend.control.create import create
from backend.job.adoption.adopt import AdoptOptions, adopt
from backend.report.export.options import Format
from backend.run_dir import RunDir, open_ledger
from tests.job.adoption.other_scripts import batch_line, write_lines
from tests.made_run import make_run
from tests.report.export.handed_over import export_to, read_rows, sample, seal

ROOT = Path(__file__).parents[2]
SAMPLES = 3_000


def start_command(*words: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-m", "backend", *words], cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    )


def delays(seed: int, rounds: int, most_s: float) -> Iterator[float]:
    rng = random.Random(seed)
    yield 0.0
    for _ in range(rounds - 1):
        yield rng.uniform(0, most_s)


@pytest.mark.parametrize("rounds", [1, pytest.param(12, marks=pytest.mark.drill)])
def test_a_killed_export_leaves_all_or_nothing(tmp_path: Path, rounds: int) -> None:
    run, to = make_run(tmp_path), tmp_path / "there" / "out"
    seal(run, [sample(number, answer=f"{number} " + "word " * 100) for number in range(SAMPLES)])
    for delay_s in delays(1, rounds, 0.4):
        command = ("export", str(run.root), "--format", "messages", "--to", str(to), "--holdout", "0.5", "--json", "--force")
        process = start_command(*command, "--dataset", "alpha")
        assert process.stdout is not None
        process.stdout.readline()  # the first rows are written
        time.sleep(delay_s)
        process.kill()
        process.wait()
        process.stdout.close()
        if to.exists():
            assert len(read_rows(to)) == SAMPLES
            assert sorted(os.listdir(to)) == ["README.md", "holdout.jsonl", "train.jsonl"]
        else:
            assert delay_s or os.listdir(to.parent) == [".out.exporting"]
    export_to(run, to, Format.MESSAGES, force=True)
    assert len(read_rows(to)) == SAMPLES
    assert os.listdir(to.parent) == ["out"]


def test_an_export_that_is_ended_cleans_up(tmp_path: Path) -> None:
    run = make_run(tmp_path)
    seal(run, [sample(number, answer=f"{number} " + "word " * 100) for number in range(SAMPLES)])
    (tmp_path / "there").mkdir()
    process = start_command("export", str(run.root), "--format", "messages", "--to", str(tmp_path / "there/out"), "--json")
    assert process.stdout is not None
    process.stdout.readline()
    process.terminate()
    process.communicate()
    assert os.listdir(tmp_path / "there") in ([], ["out"])  # it may have been done by then


def finished(run: RunDir) -> Counter[str]:
    """In how many places each sample is."""
    found: Counter[str] = Counter()
    if not run.ledger.exists():
        return found
    with closing(open_ledger(run, read_only=True)) as con:
        if con.execute("SELECT 1 FROM sqlite_master WHERE name = 'sealed_shards'").fetchone() is None:
            return found
        con.execute("BEGIN")
        found.update(row[0] for row in con.execute("SELECT sample_id FROM open_rows"))
        paths = [row[0] for row in con.execute("SELECT path FROM sealed_shards")]
        con.execute("COMMIT")
    for path in paths:
        found.update(pq.read_table(run.root / path, columns=["sample_id"])["sample_id"].to_pylist())
    return found


@pytest.mark.parametrize("rounds", [1, pytest.param(12, marks=pytest.mark.drill)])
def test_a_killed_adoption_leaves_whole_rows_and_the_same_command_goes_on(tmp_path: Path, rounds: int) -> None:
    lines = [json.dumps({"id": f"q{number}", "prompt": f"ask {number}"}) for number in range(SAMPLES)]
    (tmp_path / "own").mkdir()
    (tmp_path / "own/prompts.jsonl").write_text("\n".join(lines) + "\n")
    run = _own_run(tmp_path)
    outputs = write_lines(tmp_path / "out.jsonl", *(batch_line(f"q{n}", f"said {n} " + "word " * 200) for n in range(SAMPLES)))
    last = 0
    for delay_s in delays(2, rounds, 0.3):
        process = start_command("adopt", str(run.root), "own", str(outputs))
        deadline = time.monotonic() + 60
        while process.poll() is None and len(finished(run)) == last:
            assert time.monotonic() < deadline
            time.sleep(0.01)
        time.sleep(delay_s)
        process.kill()
        process.communicate()
        places = finished(run)
        assert set(places.values()) <= {1}
        assert len(places) >= last
        last = len(places)
    assert last > 0
    account = adopt(run, "own", [outputs], AdoptOptions(), who="test")
    assert account.counts.total() == SAMPLES
    assert finished(run) == Counter({f"q{number}": 1 for number in range(SAMPLES)})


def _own_run(folder: Path) -> RunDir:
    (folder / "own/own.toml").write_text(
        'name = "own"\n[model]\npath = "tiny"\n[engine]\nkind = "simulated"\n[driver]\nshard_rows = 500\n'
        '[[datasets]]\nname = "own"\npath = "prompts.jsonl"\n'
    )
    return create(folder / "own/own.toml", folder / "own/runs")
