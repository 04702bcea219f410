"""What is sent, and how hostile answers are read."""

from __future__ import annotations

import json
from typing import Any

import aiohttp
import orjson
import pytest
from aiohttp import web

from backend.config import SamplingConfig
from backend.job.replica import Endpoint
from backend.job.request_driver import complete, read_completion, request_body
from backend.job.request_faults import RetryableError
from backend.records import Prompt

PROMPT = Prompt("A", 0, "A-0", ({"role": "user", "content": "2+2?"},))


def answer(choice: dict[str, Any] | None = None, *, usage: Any = None, **message: Any) -> bytes:
    """A completion's JSON with these fields changed."""
    whole = {
        "index": 0,
        "message": {"role": "assistant", "content": "four", **message},
        "finish_reason": "stop",
        "matched_stop": 3,
        "prompt_token_ids": [1, 2],
        "response_token_ids": [5, 6, 3],
        "meta_info": {"prompt_tokens": 2, "completion_tokens": 3, "cached_tokens": 1, "finish_reason": {"type": "stop"}},
        **(choice or {}),
    }
    return json.dumps({"id": "r", "model": "m", "choices": [whole], "usage": usage}).encode()


def test_an_answer_is_read_whole() -> None:
    usage = {"prompt_tokens": 2, "completion_tokens": 3, "reasoning_tokens": 0}
    read = read_completion(answer(usage=usage))
    assert (read.content, read.reasoning, read.tool_calls, read.finish_reason) == ("four", None, None, "stop")
    assert (read.prompt_token_ids, read.output_ids, read.stop_token_id) == ((1, 2), (5, 6, 3), 3)
    assert (read.prompt_tokens, read.completion_tokens, read.reasoning_tokens, read.cached_tokens) == (2, 3, 0, 1)
    assert (read.tokens_estimated, read.model) == (False, "m")


def test_without_usage_the_ids_are_counted() -> None:
    read = read_completion(answer({"meta_info": None}))
    assert (read.completion_tokens, read.tokens_estimated, read.prompt_tokens) == (3, False, None)


def test_usage_that_differs_from_the_ids_is_not_believed() -> None:
    assert read_completion(answer(usage={"completion_tokens": 10})).completion_tokens == 3


def test_usage_counts_where_there_are_no_ids() -> None:
    assert read_completion(answer({"response_token_ids": None}, usage={"completion_tokens": 10})).completion_tokens == 10


def test_where_a_server_says_nothing_the_tokens_are_estimated_and_marked() -> None:
    read = read_completion(answer({"response_token_ids": None, "meta_info": {}}, content="x" * 40))
    assert (read.completion_tokens, read.tokens_estimated) == (10, True)


def test_no_content_is_an_empty_text() -> None:
    read = read_completion(answer({"finish_reason": "length"}, content=None))
    assert (read.content, read.finish_reason) == ("", "length")


@pytest.mark.parametrize("text", ["a\ud835b", "a\u2028b\u2029\x85", "\x00", "é" * 3_000_000])
def test_a_strange_text_is_exact(text: str) -> None:
    assert read_completion(answer(content=text)).content == text


def test_numbers_beyond_64_bits_and_200_keys_in_meta_info_do_no_harm() -> None:
    meta = {"id": 2**63 + 5, "finish_reason": {"type": "stop"}, **{f"k{n}": n for n in range(200)}}
    assert read_completion(answer({"meta_info": meta})).content == "four"


@pytest.mark.parametrize(
    "payload",
    [
        answer({"finish_reason": "abort"}),
        answer({"finish_reason": "abort", "meta_info": {"finish_reason": {"type": "abort", "message": "Aborted"}}}),
        answer({"finish_reason": "stop", "meta_info": {"finish_reason": {"type": "abort", "message": "Aborted"}}}),
        answer({"finish_reason": None, "meta_info": {"finish_reason": {"type": "abort"}}}),
    ],
)
def test_an_abort_with_http_200_is_no_answer(payload: bytes) -> None:
    with pytest.raises(RetryableError, match="aborted by the server"):
        read_completion(payload)


@pytest.mark.parametrize(
    "payload",
    [
        b"", b"null", b"[]", b"7", b'"x"', b"{}", b'{"choices": []}', b'{"choices": null}', b'{"choices": [null]}',
        b'{"choices": [{"message": "x"}]}', b"<html>busy</html>", b'{"choices": [{"mess', b"\xff\xfe",
        b'{"choices": [{"message": {"content": 5}}]}',
    ],
)  # fmt: skip
def test_what_is_no_answer_is_tried_again(payload: bytes) -> None:
    with pytest.raises(RetryableError):
        read_completion(payload)


def test_figures_in_another_shape_are_unknown_and_the_text_is_kept() -> None:
    whole = {"choices": [{"message": {"content": "x" * 8}, "meta_info": "y", "finish_reason": "stop"}], "usage": [1]}
    read = read_completion(json.dumps(whole).encode())
    assert (read.content, read.prompt_tokens, read.completion_tokens, read.tokens_estimated) == ("x" * 8, None, 2, True)


def test_ids_that_are_no_numbers_are_no_ids() -> None:
    read = read_completion(answer({"response_token_ids": [1, "x"], "prompt_token_ids": [None]}))
    assert (read.output_ids, read.prompt_token_ids, read.completion_tokens) == (None, None, 3)


def test_the_body_asks_for_ids_and_holds_only_what_is_set() -> None:
    body = orjson.loads(request_body(PROMPT, SamplingConfig(max_new_tokens=9, top_k=5), model="m", rid="ab"))
    assert body == {
        "model": "m", "messages": [{"role": "user", "content": "2+2?"}], "stream": False, "rid": "ab",
        "return_token_ids": True, "return_prompt_token_ids": True, "return_meta_info": True, "separate_reasoning": False,
        "max_tokens": 9, "top_k": 5,
    }  # fmt: skip


def test_the_extra_body_has_the_last_word() -> None:
    sampling = SamplingConfig(temperature=0.5, extra_body={"temperature": 1, "ignore_eos": True})
    body = orjson.loads(request_body(PROMPT, sampling, model="m", rid="ab"))
    assert (body["temperature"], body["ignore_eos"]) == (1, True)


@pytest.mark.parametrize("content", ["a\ud835b", "\u2028\x00"])
def test_strange_prompts_are_sent_exactly(content: str) -> None:
    prompt = Prompt("A", 0, "A-0", ({"role": "user", "content": content, "n": 2**70},))
    body = json.loads(request_body(prompt, SamplingConfig(), model="m", rid="ab"))
    assert body["messages"] == [{"role": "user", "content": content, "n": 2**70}]


async def test_a_connection_that_breaks_is_tried_again_and_nothing_else_is_raised() -> None:
    async def drop(request: web.Request) -> web.Response:
        assert request.transport is not None
        request.transport.abort()
        return web.Response()

    app = web.Application()
    app.router.add_post("/v1/chat/completions", drop)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    url = f"http://127.0.0.1:{runner.addresses[0][1]}"
    async with aiohttp.ClientSession() as session:
        with pytest.raises(RetryableError, match="no answer: "):
            await complete(session, Endpoint("0", url, None, "l", owned=True), b"{}")
        await runner.cleanup()
        with pytest.raises(RetryableError, match="no answer: "):
            await complete(session, Endpoint("0", url, None, "l", owned=True), b"{}")
