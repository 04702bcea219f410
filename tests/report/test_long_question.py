"""A question in a process of its own: answered, cut, cancelled, too slow, too large."""

from __future__ import annotations

import time
from pathlib import Path

import psutil
import pytest

from backend.report import long_question
from backend.report.long_question import LongQuestion
from backend.report.questions import BY_NAME, begin, defaults
from backend.run_dir import RunDir, RunDirError
from tests.finished_samples import add_open, sample, seal
from tests.made_run import make_run

ENDLESS = "SELECT sum(sqrt(range)) FROM range(1000000000000)"  # streams: it takes time and no memory


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> RunDir:
    run = make_run(tmp_path_factory.mktemp("long"))
    add_open(run, [sample(0), sample(1)])
    seal(run, "alpha", 1)
    add_open(run, [sample(2)])
    return run


def test_a_long_question_of_the_catalogue_is_answered(run: RunDir) -> None:
    question = begin(run, BY_NAME["duplicate_prompts"], defaults(BY_NAME["duplicate_prompts"]))
    assert question.wait(60)
    result = question.result()
    assert [row["samples"] for row in result.table.to_pylist()] == [3]
    assert not result.cut
    assert question.seconds() == result.took_s > 0


def test_two_runs_are_compared(run: RunDir, tmp_path: Path) -> None:
    other = make_run(tmp_path)
    add_open(other, [sample(1, completion_tokens=6)])
    question = begin(run, BY_NAME["compared_lengths"], {"other": other, "by": "id"})
    assert question.wait(60)
    (row,) = question.result().table.to_pylist()
    assert (row["prompts"], row["mean_tokens"], row["other_mean_tokens"]) == (1, 4, 6)


def test_a_huge_result_is_cut(run: RunDir) -> None:
    question = LongQuestion(run, sql="FROM range(100000000000)")
    assert question.wait(60)
    result = question.result()
    assert result.cut
    assert result.table.num_rows == long_question.RESULT_ROWS


def test_a_result_of_large_cells_is_cut_by_its_size(run: RunDir) -> None:
    question = LongQuestion(run, sql="SELECT repeat('x', 10000) AS x FROM range(20000)")
    assert question.wait(60)
    result = question.result()
    assert result.cut
    assert 0 < result.table.nbytes <= long_question.RESULT_BYTES


def test_a_question_that_was_cancelled_leaves_no_process(run: RunDir) -> None:
    question = LongQuestion(run, sql=ENDLESS)
    assert not question.wait(0.5)
    question.cancel()
    assert question.wait(10)
    with pytest.raises(RunDirError, match=r"Cancelled\."):
        question.result()
    assert not psutil.pid_exists(question.pid)


def test_a_question_that_takes_too_long_is_ended_with_words(run: RunDir) -> None:
    began = time.monotonic()
    question = LongQuestion(run, sql=ENDLESS, limit_s=2.0)
    assert question.wait(30)
    with pytest.raises(RunDirError, match="took longer than 2 s"):
        question.result()
    assert time.monotonic() - began < 8
    assert not psutil.pid_exists(question.pid)


@pytest.mark.parametrize(
    "sql",
    ["SELECT list(range) FROM range(1000000000)", "SELECT repeat('x', 30000000) FROM range(100)"],
    ids=["a list", "cells"],
)
def test_a_question_that_needs_too_much_memory_is_ended_with_words(sql: str, run: RunDir) -> None:
    question = LongQuestion(run, sql=sql, memory_bytes=1 << 30)
    assert question.wait(60)
    with pytest.raises(RunDirError, match=r"more memory than 1\.0 GB"):
        question.result()


def test_what_duckdb_says_to_a_statement_is_told(run: RunDir) -> None:
    question = LongQuestion(run, sql="SELECT nope FROM samples")
    assert question.wait(60)
    with pytest.raises(RunDirError, match="nope"):
        question.result()


def test_the_answering_process_knows_no_secret_of_this_one(run: RunDir, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENROUTER_API_KEY", "the key")
    question = LongQuestion(run, sql=ENDLESS)
    try:
        assert "OPENROUTER_API_KEY" not in psutil.Process(question.pid).environ()
    finally:
        question.cancel()
        assert question.wait(10)


def test_a_run_that_cannot_be_read_is_told(tmp_path: Path) -> None:
    run = make_run(tmp_path)
    run.ledger.write_bytes(b"no database" * 1000)
    question = LongQuestion(run, sql="FROM samples")
    assert question.wait(60)
    with pytest.raises(RunDirError, match="damaged"):
        question.result()
