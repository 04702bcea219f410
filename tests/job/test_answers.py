"""From an answer to the row that is kept."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import aiohttp
import pytest
from aiohttp import web

from backend.job.answers import Answer, message_of, read_answer, rejected_answer
from backend.job.replica import Endpoint
from backend.job.request_driver import Completion
from backend.outcomes import outcome_of
from backend.records import Outcome, Prompt
from backend.simulator import tokens

PROMPT = Prompt("A", 7, "A-7/t1", ({"role": "user", "content": "2+2?"},), turn=1, attempt=2)
TOOLS = ({"type": "function", "function": {"name": "add"}},)
CALL = {"id": "c1", "type": "function", "function": {"name": "add", "arguments": '{"a": "é"}'}}
PLAIN = Completion(
    content="four", reasoning=None, tool_calls=None, prompt_token_ids=(1, 2), output_ids=(5, 6, 3), prompt_tokens=2,
    completion_tokens=3, reasoning_tokens=0, cached_tokens=0, finish_reason="stop", first_token_s=0.25,
    tokens_estimated=False, model="m", stop_token_id=3,
)  # fmt: skip


@pytest.fixture
async def server() -> AsyncIterator[tuple[Endpoint, list[Any]]]:
    """Decodes ids as the simulator's tokenizer does; what it was asked is kept."""
    asked: list[Any] = []

    async def detokenize(request: web.Request) -> web.Response:
        body = await request.json()
        asked.append(body)
        return web.json_response({"text": tokens.decode(body["tokens"])})

    app = web.Application()
    app.router.add_post("/detokenize", detokenize)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    yield Endpoint("0", f"http://127.0.0.1:{runner.addresses[0][1]}", None, "launch", owned=True), asked
    await runner.cleanup()


async def read(completion: Completion, endpoint: Endpoint, *, prompt: Prompt = PROMPT, opened: bool = False) -> Answer:
    async with aiohttp.ClientSession() as session:
        return await read_answer(session, prompt, completion, endpoint, started_at=100.0, finished_at=103.0, opened=opened)


NOWHERE = Endpoint("0", "http://127.0.0.1:9", None, "launch", owned=True)


async def test_a_plain_answer_becomes_a_row_of_its_own_sample() -> None:
    answer = await read(PLAIN, NOWHERE)
    row = answer.row
    assert (row.dataset, row.sample_id, row.position, row.turn, row.attempt) == ("A", "A-7/t1", 7, 1, 2)
    assert (row.raw_text, row.reasoning, row.answer, row.tool_calls) == ("four", None, "four", None)
    assert (row.started_at, row.first_token_at, row.finished_at) == (100.0, 100.25, 103.0)
    assert (row.server_epoch, row.source, row.error) == ("0:launch", "local", None)
    assert json.loads(row.messages) == {"messages": [{"role": "user", "content": "2+2?"}]}
    assert answer.message == {"role": "assistant", "content": "four"}
    assert not answer.shows_opened_reasoning


async def test_reasoning_is_taken_apart_and_the_raw_text_stays() -> None:
    text = "<think>\nTwo and two.\n</think>\n\nfour"
    answer = await read(replace(PLAIN, content=text), NOWHERE)
    assert answer.row.raw_text == text
    assert (answer.row.reasoning or "").strip() == "Two and two."
    assert answer.row.answer == "four"
    assert answer.message == {"role": "assistant", "content": "four"}


async def test_a_closed_reasoning_that_was_not_opened_shows_that_the_template_opens_it() -> None:
    answer = await read(replace(PLAIN, content="Two and two.\n</think>\n\nfour"), NOWHERE)
    assert answer.shows_opened_reasoning
    assert answer.row.answer == "four"


async def test_where_the_template_opens_the_reasoning_a_text_without_its_end_is_all_reasoning() -> None:
    cut = replace(PLAIN, content="Two and two and", finish_reason="stop")
    assert outcome_of((await read(cut, NOWHERE, opened=True)).row) is Outcome.THINKING_ONLY
    assert outcome_of((await read(cut, NOWHERE)).row) is Outcome.OK


async def test_calls_of_tools_are_kept_and_the_text_is_decoded_from_its_ids(server: tuple[Endpoint, list[Any]]) -> None:
    endpoint, asked = server
    raw = '<tool_call>\n{"name": "add"}\n</tool_call>'
    ids = (*tokens.encode(raw), tokens.END)
    calling = replace(
        PLAIN, content="", tool_calls=[CALL], output_ids=ids, finish_reason="tool_calls", stop_token_id=tokens.END
    )
    answer = await read(calling, endpoint, prompt=replace(PROMPT, tools=TOOLS))
    assert asked == [{"model": "m", "tokens": list(ids[:-1]), "skip_special_tokens": False}]
    assert answer.row.raw_text == raw
    assert json.loads(answer.row.tool_calls or "") == [CALL]
    assert json.loads(answer.row.messages)["tools"] == list(TOOLS)
    assert answer.message == {"role": "assistant", "content": "", "tool_calls": [CALL]}
    assert outcome_of(answer.row) is Outcome.OK


async def test_where_ids_cannot_be_decoded_the_raw_text_is_unknown_and_the_ids_are_kept() -> None:
    answer = await read(replace(PLAIN, content="", tool_calls=[CALL], finish_reason="tool_calls"), NOWHERE)
    assert answer.row.raw_text is None
    assert answer.row.output_ids == (5, 6, 3)


@pytest.mark.parametrize("text", ["a\ud835b", "a\u2028b\x85\x00", "x" * 6_000_000])
async def test_strange_texts_are_kept_exactly(text: str) -> None:
    row = (await read(replace(PLAIN, content=text), NOWHERE)).row
    assert row.raw_text == text
    assert row.answer == text


async def test_nothing_written_is_empty_or_truncated_by_how_it_ended() -> None:
    empty = replace(PLAIN, content="", output_ids=(3,), completion_tokens=1)
    assert outcome_of((await read(empty, NOWHERE)).row) is Outcome.EMPTY
    assert outcome_of((await read(replace(empty, finish_reason="length"), NOWHERE)).row) is Outcome.TRUNCATED


def test_a_refused_prompt_keeps_the_servers_words_and_no_text() -> None:
    answer = rejected_answer(PROMPT, "m", NOWHERE, started_at=1.0, finished_at=2.0, words="HTTP 400: too long")
    row = answer.row
    assert (row.finish_reason, row.error, row.completion_tokens, row.raw_text) == ("rejected", "HTTP 400: too long", 0, None)
    assert (row.attempt, row.turn, row.model) == (2, 1, "m")
    assert answer.message is None
    assert outcome_of(row) is Outcome.REJECTED


async def test_a_conversation_goes_on_from_a_durable_row_as_from_the_answer_itself() -> None:
    for completion in (
        PLAIN,
        replace(PLAIN, content="<think>x</think>four"),
        replace(PLAIN, content="", tool_calls=[CALL], finish_reason="tool_calls"),
    ):
        answer = await read(completion, NOWHERE)
        assert message_of(answer.row) == answer.message
