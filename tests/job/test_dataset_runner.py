"""One dataset's prompts and accounts: nothing twice, nothing lost, whatever was finished before or is in flight."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from backend.job.dataset_runner import DatasetRunner
from backend.job.ledger import Ledger
from backend.records import DoneReason, Outcome, Prompt
from tests.job.made_job import make_config, make_run_dir, make_runners
from tests.sample_rows import make_row

CONVERSATION = {
    "id": "C",
    "messages": [
        {"role": "user", "content": "one"},
        {"role": "assistant", "content": "original"},
        {"role": "user", "content": "two"},
        {"role": "assistant", "content": "original"},
        {"role": "user", "content": "three"},
    ],
}


@pytest.fixture
async def ledger(tmp_path: Path) -> AsyncIterator[Ledger]:
    ledger = Ledger.open(make_run_dir(tmp_path))
    yield ledger
    await ledger.close()


def make_runner(folder: Path, ledger: Ledger, prompts: Sequence[Any], **settings: Any) -> DatasetRunner:
    return make_runners(make_config(folder, {"A": prompts}, **settings), ledger)["A"]


async def store(ledger: Ledger, *sample_ids: str, **changes: Any) -> None:
    futures = [ledger.append(make_row(n, dataset="A", sample_id=one, **changes)) for n, one in enumerate(sample_ids)]
    await ledger.flush()
    await asyncio.gather(*futures)


def take_all(runner: DatasetRunner) -> list[str]:
    taken = []
    while runner.prompt_ready:
        taken.append(runner.take().sample_id)
    return taken


async def finish(runner: DatasetRunner, ledger: Ledger, prompt: Prompt, **changes: Any) -> None:
    """As slots.py does it: started, durable, told."""
    row = make_row(0, dataset="A", sample_id=prompt.sample_id, turn=prompt.turn, attempt=prompt.attempt, **changes)
    future = ledger.append(row)
    await ledger.flush()
    await future
    rejected = row.finish_reason == "rejected"
    runner.finished(prompt, row, None if rejected else {"role": "assistant", "content": row.answer})


async def test_prompts_come_in_the_order_of_the_file_and_end(tmp_path: Path, ledger: Ledger) -> None:
    runner = make_runner(tmp_path, ledger, ["a", "b", "c"])
    assert not runner.exhausted
    await runner.read_ahead(100)
    assert runner.prompts == 3
    assert not runner.exhausted
    assert take_all(runner) == ["A-0", "A-1", "A-2"]
    assert runner.exhausted
    assert not runner.wants_prompts


async def test_what_a_former_life_finished_is_passed_over_and_counted(tmp_path: Path, ledger: Ledger) -> None:
    await store(ledger, "A-1")
    runner = make_runner(tmp_path, ledger, ["a", "b", "c"], dataset={"max_samples": 3})
    await runner.read_ahead(100)
    assert take_all(runner) == ["A-0", "A-2"]
    assert runner.admission.finished_samples == 1
    assert runner.admission.finished_tokens == 4


async def test_every_length_is_counted_those_of_former_lives_too(tmp_path: Path, ledger: Ledger) -> None:
    await store(ledger, "A-1", completion_tokens=70)
    runner = make_runner(tmp_path, ledger, ["a", "b", "c"])
    await runner.read_ahead(100)
    for changes in ({"completion_tokens": 70}, {"completion_tokens": 9, "finish_reason": "rejected"}):
        prompt = runner.take()
        runner.started(prompt)
        await finish(runner, ledger, prompt, **changes)
    assert runner.lengths == {70: 2}
    runner.forget_sample(next(iter(ledger.outcome_keys("A", [Outcome.OK, Outcome.EMPTY]))))
    assert runner.lengths == {70: 1}


async def test_turns_of_conversations_are_reckoned_from_those_that_were_read(tmp_path: Path, ledger: Ledger) -> None:
    short = {"id": "S", "messages": CONVERSATION["messages"][:1]}
    runner = make_runner(tmp_path, ledger, [CONVERSATION, short, b"{"], dataset={"turns": "all"})
    assert runner.expected_samples == 3  # nothing was read: a turn each, the bad line too
    await runner.read_ahead(100)
    assert runner.expected_samples == 4


async def test_a_pilot_is_over_when_a_request_is_sent_in_turn(tmp_path: Path, ledger: Ledger) -> None:
    runner = make_runner(tmp_path, ledger, ["a", "b"])
    await runner.read_ahead(100)
    assert not runner.in_pilot
    runner.started(runner.take(), pilot=True)
    assert runner.in_pilot
    runner.started(runner.take())
    assert not runner.in_pilot


async def test_another_cap_holds_for_requests_to_come(tmp_path: Path, ledger: Ledger) -> None:
    runner = make_runner(tmp_path, ledger, ["a"], generation={"max_new_tokens": 4096, "temperature": 0.5})
    assert runner.sampling.max_new_tokens == 4096
    runner.set_cap(1024)
    assert (runner.sampling.max_new_tokens, runner.sampling.temperature) == (1024, 0.5)
    assert runner.admission.cap_tokens == 1024


async def test_a_second_pass_passes_over_what_is_finished_in_flight_or_buffered(tmp_path: Path, ledger: Ledger) -> None:
    runner = make_runner(tmp_path, ledger, ["a", "b", "c", "d"])
    await runner.read_ahead(100)
    finished, in_flight = runner.take(), runner.take()
    runner.started(finished)
    runner.started(in_flight)
    await finish(runner, ledger, finished)

    runner.read_again()
    await runner.read_ahead(100)

    assert take_all(runner) == ["A-2", "A-3"]


async def test_a_superseded_sample_is_found_again_with_its_next_attempt(tmp_path: Path, ledger: Ledger) -> None:
    runner = make_runner(tmp_path, ledger, ["a", "b"])
    await runner.read_ahead(100)
    first = runner.take()
    runner.started(first)
    await finish(runner, ledger, first)
    await ledger.supersede("A", list(ledger.outcome_keys("A", list(Outcome))), "redo")

    runner.read_again()
    await runner.read_ahead(100)

    assert [(p.sample_id, p.attempt) for p in (runner.take(), runner.take())] == [("A-1", 1), ("A-0", 2)]


async def test_a_prompt_that_was_given_back_goes_first_and_frees_its_reservation(tmp_path: Path, ledger: Ledger) -> None:
    runner = make_runner(tmp_path, ledger, ["a", "b", "c"])
    await runner.read_ahead(100)
    prompt = runner.take()
    runner.started(prompt)
    runner.take()
    runner.ended_without_sample(prompt)
    assert runner.admission.in_flight == 0
    assert take_all(runner) == ["A-0", "A-2"]


async def test_lines_without_a_prompt_are_counted_once_however_often_the_file_is_read(tmp_path: Path, ledger: Ledger) -> None:
    runner = make_runner(tmp_path, ledger, ["a", b"{torn", b'{"id": "x"}', "b"])
    await runner.read_ahead(100)
    runner.read_again()
    await runner.read_ahead(100)
    assert take_all(runner) == ["A-0", "A-3"]
    assert runner.bad_line_count == 2
    assert [(Path(one.file).name, one.line) for one in runner.bad_lines] == [("A.jsonl", 2), ("A.jsonl", 3)]


async def test_a_file_that_has_changed_is_a_fault_that_names_it(tmp_path: Path, ledger: Ledger) -> None:
    runner = make_runner(tmp_path, ledger, ["a", "b"])
    (tmp_path / "A.jsonl").write_text('{"prompt": "another"}\n')
    await runner.read_ahead(100)
    assert "A.jsonl" in (runner.fault or "")
    assert not runner.prompt_ready
    assert not runner.wants_prompts


async def test_a_refused_sample_is_spent_and_teaches_no_length(tmp_path: Path, ledger: Ledger) -> None:
    runner = make_runner(tmp_path, ledger, ["a", "b"], dataset={"max_samples": 1})
    await runner.read_ahead(100)
    mean_tokens = runner.admission.mean_tokens
    prompt = runner.take()
    runner.started(prompt)
    await finish(runner, ledger, prompt, finish_reason="rejected", completion_tokens=0, error="HTTP 400: no")
    assert runner.limit_reached() is DoneReason.SAMPLES
    assert runner.admission.mean_tokens == mean_tokens
    assert runner.first_rejection == "HTTP 400: no"


async def test_a_conversation_goes_on_with_the_answers_that_were_made(tmp_path: Path, ledger: Ledger) -> None:
    runner = make_runner(tmp_path, ledger, [CONVERSATION], dataset={"turns": "all"})
    await runner.read_ahead(100)
    contents = []
    while runner.prompt_ready:
        prompt = runner.take()
        contents.append((prompt.sample_id, [message["content"] for message in prompt.messages]))
        runner.started(prompt)
        await finish(runner, ledger, prompt, answer=f"made {prompt.turn}")
    assert contents == [
        ("C/t0", ["one"]),
        ("C/t1", ["one", "made 0", "two"]),
        ("C/t2", ["one", "made 0", "two", "made 1", "three"]),
    ]
    assert runner.exhausted


async def test_a_conversation_is_resumed_from_its_durable_answers(tmp_path: Path, ledger: Ledger) -> None:
    await store(ledger, "C/t0", answer="made 0")
    await store(ledger, "C/t1", answer="made 1")
    runner = make_runner(tmp_path, ledger, [CONVERSATION], dataset={"turns": "all"})
    await runner.read_ahead(100)
    prompt = runner.take()
    assert prompt.sample_id == "C/t2"
    assert [message["content"] for message in prompt.messages] == ["one", "made 0", "two", "made 1", "three"]
    assert runner.exhausted


async def test_a_conversation_ends_at_a_turn_that_was_refused(tmp_path: Path, ledger: Ledger) -> None:
    await store(ledger, "C/t0", finish_reason="rejected", answer=None, completion_tokens=0, error="no")
    runner = make_runner(tmp_path, ledger, [CONVERSATION], dataset={"turns": "all"})
    await runner.read_ahead(100)
    assert runner.exhausted


async def test_equal_prompts_are_two_samples(tmp_path: Path, ledger: Ledger) -> None:
    runner = make_runner(tmp_path, ledger, [{"prompt": "same"}, {"prompt": "same"}])
    await runner.read_ahead(100)
    assert len(set(take_all(runner))) == 2


async def test_reading_ahead_stops_when_enough_is_at_hand(tmp_path: Path, ledger: Ledger) -> None:
    runner = make_runner(tmp_path, ledger, [f"p{n}" for n in range(2_000)])
    await runner.read_ahead(10)
    assert 10 <= runner.buffered() < 2_000
    assert runner.wants_prompts


async def test_a_dataset_that_failed_by_its_file_goes_on_when_the_file_is_back_and_somebody_asks(
    tmp_path: Path, ledger: Ledger
) -> None:
    runner = make_runner(tmp_path, ledger, ["a", "b"])
    file, away = tmp_path / "A.jsonl", tmp_path / "away.jsonl"
    file.rename(away)
    await runner.read_ahead(10)
    assert runner.fault is not None
    assert "does not exist" in runner.fault
    away.rename(file)
    runner.forgive()
    await runner.read_ahead(10)
    assert runner.fault is None
    assert take_all(runner) == ["A-0", "A-1"]
