"""A finished sample is found again, exactly, wherever it lies."""

from __future__ import annotations

from pathlib import Path

import pytest

from backend.records import Facts, Outcome
from backend.report.sample_finder import Wanted, find
from backend.report.samples import Said, messages_said, read_sample
from backend.run_dir import RunDir, RunDirError
from tests.finished_samples import add_open, replace_row, sample, seal
from tests.made_run import make_run
from tests.sample_rows import STRANGE_ROWS


@pytest.fixture
def run(tmp_path: Path) -> RunDir:
    return make_run(tmp_path)


def test_the_newest_come_first_and_replaced_ones_not_at_all(run: RunDir) -> None:
    add_open(run, [sample(i) for i in range(5)])
    seal(run, "alpha", 1)
    add_open(run, [sample(i) for i in range(5, 8)])
    replace_row(run, sample(6))
    assert [line.position for line in find(run, Wanted("alpha"), limit=4)] == [7, 5, 4, 3]


def test_one_outcome_can_be_asked_for(run: RunDir) -> None:
    add_open(run, [sample(0), sample(1, finish_reason="length"), sample(2, facts=Facts(answer_tokens=0))])
    (line,) = find(run, Wanted("alpha", Outcome.EMPTY), limit=9)
    assert (line.position, line.outcome) == (2, Outcome.EMPTY)
    assert find(run, Wanted("alpha", Outcome.DEGENERATE), limit=9) == []


@pytest.mark.parametrize("name", sorted(STRANGE_ROWS))
def test_texts_come_back_exactly_open_or_sealed(run: RunDir, name: str) -> None:
    row = STRANGE_ROWS[name]
    add_open(run, [row])
    (line,) = find(run, Wanted(row.dataset), limit=1)
    opened = read_sample(run, line)
    seal(run, row.dataset, 1)
    sealed = read_sample(run, line)
    assert opened is not None
    assert sealed is not None
    assert opened.row == sealed.row
    assert (sealed.row.messages, sealed.row.raw_text) == (row.messages, row.raw_text)
    assert sealed.row.answer == row.answer


def test_a_sample_in_a_shard_cut_short_is_told_in_words(run: RunDir) -> None:
    add_open(run, [sample(0)])
    (line,) = find(run, Wanted("alpha"), limit=1)
    seal(run, "alpha", 1)
    run.shard("alpha", 1).write_bytes(b"PAR1")
    with pytest.raises(RunDirError, match=r"00000001\.parquet cannot be read"):
        read_sample(run, line)


def test_a_sample_that_is_nowhere_any_more_is_none(run: RunDir) -> None:
    add_open(run, [sample(0)])
    (line,) = find(run, Wanted("alpha"), limit=1)
    run.ledger.unlink()
    assert read_sample(run, line) is None


def test_reasoning_that_was_never_split_is_split_for_reading(run: RunDir) -> None:
    add_open(run, [sample(0, reasoning=None, answer=None, raw_text="<think>hm</think>four")])
    (line,) = find(run, Wanted("alpha"), limit=1)
    found = read_sample(run, line)
    assert found is not None
    assert (found.reasoning, found.answer) == ("hm", "four")


@pytest.mark.parametrize(("said", "shown"), [(7, 7), (0, 6), (None, 6)])
def test_reasoning_tokens_that_the_server_does_not_tell_are_what_the_answer_leaves(
    run: RunDir, said: int | None, shown: int
) -> None:
    facts = Facts(answer_tokens=4, reasoning_closed=True)
    add_open(run, [sample(0, reasoning="hm", completion_tokens=10, reasoning_tokens=said, facts=facts)])
    (line,) = find(run, Wanted("alpha"), limit=1)
    found = read_sample(run, line)
    assert found is not None
    assert found.reasoning_tokens == shown


def test_a_prompt_is_told_message_by_message() -> None:
    messages = '{"tools": [{"type": "function"}], "messages": [{"role": "user", "content": "2+2?"}, {"role": "assistant", "content": null, "tool_calls": [1]}]}'  # noqa: E501
    tools, user, assistant = messages_said(messages)
    assert user == Said("user", "2+2?")
    assert tools.role == "tools"
    assert "function" in tools.text
    assert assistant.text == "[\n 1\n]"


@pytest.mark.parametrize("messages", ["", "no JSON", "[]", '{"messages": 3}', '{"messages": [3]}', "null", "{}"])
def test_a_prompt_of_another_shape_is_one_text(messages: str) -> None:
    assert messages_said(messages) == (Said("prompt", messages),)
