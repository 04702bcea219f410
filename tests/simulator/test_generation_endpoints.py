"""Chat completions and /generate: shapes, token ids, aborts, pauses, disconnects, streams."""

from __future__ import annotations

import asyncio
import json
import time
from typing import Any

import aiohttp
import pytest

from backend.simulator import tokens
from backend.simulator.lengths import LengthRule
from backend.simulator.settings import Prices, Profile

from .conftest import Client, Serve

META_FIELDS = (
    "id finish_reason prompt_tokens weight_version num_retractions reasoning_tokens completion_tokens cached_tokens "
    "cached_tokens_details dp_rank e2e_latency queue_time request_received_ts first_token_latency decode_throughput"
)
ALL_IDS: dict[str, Any] = {"return_token_ids": True, "return_prompt_token_ids": True, "return_meta_info": True}


async def _until_running(client: Client, count: int) -> None:
    deadline = time.monotonic() + 20
    while client.server.engine.scheduler.running_count != count:
        assert time.monotonic() < deadline
        await asyncio.sleep(0.01)


async def test_a_chat_answer_has_the_real_shape(serve: Serve) -> None:
    async with serve() as client:
        status, reply = await client.chat(rid="a" * 32, **ALL_IDS)
        assert status == 200
        assert reply["id"] == "a" * 32
        (choice,) = reply["choices"]
        assert set(choice["message"]) == {"role", "content", "reasoning_content", "tool_calls"}
        assert choice["finish_reason"] == "stop"
        assert choice["matched_stop"] == tokens.END
        assert set(META_FIELDS.split()) <= set(choice["meta_info"])
        assert choice["meta_info"]["finish_reason"] == {"type": "stop", "matched": tokens.END}
        usage = reply["usage"]
        assert usage["total_tokens"] == usage["prompt_tokens"] + usage["completion_tokens"]
        assert usage["prompt_tokens"] == len(choice["prompt_token_ids"])
        assert usage["completion_tokens"] == len(choice["response_token_ids"])
        assert 0 < usage["reasoning_tokens"] < usage["completion_tokens"]


async def test_output_ids_decode_to_the_raw_text_tags_included(serve: Serve) -> None:
    async with serve(reasoning_parser=None) as client:
        _, reply = await client.chat(**ALL_IDS)
        (choice,) = reply["choices"]
        assert tokens.decode(choice["response_token_ids"]) == choice["message"]["content"]
        assert choice["message"]["content"].startswith("<think>\n")
        assert choice["message"]["reasoning_content"] is None
        _, reply = await client.post("/generate", {"text": "x", "sampling_params": {"max_new_tokens": 4000}})
        assert tokens.decode(reply["output_ids"]) == reply["text"]
        assert reply["meta_info"]["completion_tokens"] == len(reply["output_ids"])


async def test_the_reasoning_parser_splits_thoughts_from_the_answer(serve: Serve) -> None:
    async with serve() as client:
        message = (await client.chat())[1]["choices"][0]["message"]
        assert message["reasoning_content"]
        assert message["content"]
        assert "think>" not in message["content"] + message["reasoning_content"]


async def test_enable_thinking_false_gives_an_answer_without_thoughts(serve: Serve) -> None:
    async with serve() as client:
        _, reply = await client.chat(chat_template_kwargs={"enable_thinking": False}, **ALL_IDS)
        (choice,) = reply["choices"]
        assert choice["message"]["reasoning_content"] is None
        assert choice["message"]["content"] == tokens.decode(choice["response_token_ids"])
        assert tokens.decode(choice["prompt_token_ids"]).endswith("<think>\n\n</think>\n\n")


async def test_the_cap_ends_a_text_with_length(serve: Serve) -> None:
    async with serve(mean=500, log_sd=0) as client:
        for name in ("max_tokens", "max_completion_tokens"):
            _, reply = await client.chat(**{name: 100})
            assert reply["choices"][0]["finish_reason"] == "length"
            assert reply["choices"][0]["matched_stop"] is None
            assert reply["usage"]["completion_tokens"] == 100
        _, reply = await client.post("/generate", {"text": "x"})
        assert reply["meta_info"]["finish_reason"] == {"type": "length", "length": 128}


async def test_the_same_prompt_gives_the_same_text_after_a_restart(serve: Serve) -> None:
    texts = []
    for _ in range(2):
        async with serve(random_seed=5) as client:
            texts.append([(await client.chat(f"p{n}"))[1]["choices"][0]["message"] for n in range(3)])
    assert texts[0] == texts[1]
    async with serve(random_seed=6) as client:
        assert (await client.chat("p0"))[1]["choices"][0]["message"] != texts[0][0]


@pytest.mark.parametrize("name", list(ALL_IDS))
async def test_token_ids_are_refused_with_stream(serve: Serve, name: str) -> None:
    async with serve() as client:
        status, reply = await client.chat(stream=True, **{name: True})
        assert status == 400
        assert name in reply["message"]


async def test_a_rid_in_use_is_refused_and_a_finished_one_may_be_used_again(serve: Serve) -> None:
    async with serve(speed=20, mean=1000, log_sd=0) as client:
        first = asyncio.create_task(client.chat(rid="r1"))
        await _until_running(client, 1)
        status, reply = await client.chat(rid="r1")
        assert status == 400
        assert "Duplicate request ID" in reply["message"]
        assert (await first)[0] == 200
        assert (await client.chat(rid="r1"))[0] == 200


async def test_what_does_not_fit_the_context_is_refused_with_sglangs_words(serve: Serve) -> None:
    async with serve(context_length=200) as client:
        status, reply = await client.chat(max_tokens=5000)
        assert status == 400
        assert "maximum context length of 200 tokens" in reply["message"]
        status, reply = await client.chat("word " * 300)
        assert status == 400
        assert "longer than the model's context length" in reply["message"]


async def test_bad_bodies_are_refused(serve: Serve) -> None:
    async with serve() as client:
        assert (await client.post("/v1/chat/completions", {"messages": []}))[0] == 400
        assert (await client.post("/generate", {}))[0] == 400
        status, reply = await client.post("/generate", {"text": "x", "sampling_params": {"max_tokens": 5}})
        assert status == 400
        assert "unknown field `max_tokens`" in reply["error"]["message"]
        async with client.session.post(client.server.url + "/generate", data=b"{nonsense") as response:
            assert response.status == 400


async def test_an_abort_ends_with_http_200_and_the_text_so_far(serve: Serve) -> None:
    async with serve(speed=10, mean=2000, log_sd=0) as client:
        task = asyncio.create_task(client.chat(rid="x" * 32, **ALL_IDS))
        await _until_running(client, 1)
        await asyncio.sleep(0.2)
        assert (await client.post("/abort_request", {"rid": "x" * 32}))[0] == 200
        status, reply = await task
        (choice,) = reply["choices"]
        assert (status, choice["finish_reason"]) == (200, "abort")
        assert choice["meta_info"]["finish_reason"]["message"] == "Aborted"
        assert 0 < reply["usage"]["completion_tokens"] == len(choice["response_token_ids"]) < 2000
        assert await client.metric("num_aborted_requests_total") == 1


async def test_an_abort_takes_every_rid_with_that_beginning_if_it_is_itself_one(serve: Serve) -> None:
    async with serve(speed=10, mean=1200, log_sd=0, max_running_requests=2) as client:
        tasks = {rid: asyncio.create_task(client.chat(rid, rid=rid, **ALL_IDS)) for rid in ("1", "10", "2", "105")}
        await _until_running(client, 2)
        await client.post("/abort_request", {"rid": "0"})
        await client.post("/abort_request", {"rid": ""})
        assert len(client.server.engine.generations) == 4
        await client.post("/abort_request", {"rid": "1"})
        reasons = {rid: (await task)[1]["choices"][0] for rid, task in tasks.items()}
        assert {rid: choice["finish_reason"] for rid, choice in reasons.items()} == {
            "1": "abort", "10": "abort", "105": "abort", "2": "stop",
        }  # fmt: skip
        waiting = reasons["105"]["meta_info"]
        assert waiting["finish_reason"]["message"] == "Abort in waiting queue"
        assert "prompt_tokens" not in waiting


async def test_abort_all_ends_everything(serve: Serve) -> None:
    async with serve(speed=10, mean=2000, log_sd=0) as client:
        tasks = [asyncio.create_task(client.chat(f"p{n}")) for n in range(3)]
        await _until_running(client, 3)
        await client.post("/abort_request", {"abort_all": True})
        assert [(await task)[1]["choices"][0]["finish_reason"] for task in tasks] == ["abort"] * 3


@pytest.mark.parametrize(("mode", "reason"), [("abort", "abort"), ("in_place", "stop"), ("retract", "stop")])
async def test_a_pause_ends_or_holds_requests_by_its_mode(serve: Serve, mode: str, reason: str) -> None:
    async with serve(speed=20, mean=1200, log_sd=0) as client:
        task = asyncio.create_task(client.chat("running"))
        await _until_running(client, 1)
        assert (await client.post("/pause_generation", {"mode": mode}))[0] == 200
        blocked = asyncio.create_task(client.chat("new"))
        await asyncio.sleep(0.3)
        assert not blocked.done()
        assert task.done() == (mode == "abort")
        await client.post("/continue_generation", {})
        assert (await task)[1]["choices"][0]["finish_reason"] == reason
        assert (await blocked)[1]["choices"][0]["finish_reason"] == "stop"


async def test_an_unknown_pause_mode_is_refused(serve: Serve) -> None:
    async with serve() as client:
        assert (await client.post("/pause_generation", {"mode": "nap"}))[0] == 400


async def test_flush_cache_fails_while_requests_run(serve: Serve) -> None:
    async with serve(speed=10, mean=2000, log_sd=0) as client:
        task = asyncio.create_task(client.chat())
        await _until_running(client, 1)
        assert (await client.post("/flush_cache", {}))[0] == 400
        await client.post("/abort_request", {"abort_all": True})
        await task


async def _give_up(client: Client, **body: Any) -> None:
    with pytest.raises(asyncio.TimeoutError):
        async with client.session.post(
            client.server.url + "/v1/chat/completions",
            json={"messages": [{"role": "user", "content": "p"}], **body},
            timeout=aiohttp.ClientTimeout(total=0.2),
        ) as response:
            await response.read()


@pytest.mark.parametrize("stream", [False, True])
async def test_a_client_that_goes_away_ends_its_generation(serve: Serve, stream: bool) -> None:
    async with serve(speed=20, mean=20_000, log_sd=0) as client:
        await _give_up(client, stream=stream)
        assert client.server.engine.scheduler.running_count == 1
        await _until_running(client, 0)


async def test_a_full_queue_answers_503(serve: Serve) -> None:
    async with serve(speed=10, mean=1000, log_sd=0, max_running_requests=1, max_queued_requests=1) as client:
        tasks = [asyncio.create_task(client.chat("a"))]
        await _until_running(client, 1)
        tasks.append(asyncio.create_task(client.chat("b")))
        await asyncio.sleep(0.05)
        status, reply = await client.chat("c")
        assert (status, reply["message"]) == (503, "The request queue is full.")
        await client.post("/abort_request", {"abort_all": True})
        await asyncio.gather(*tasks)


async def _frames(client: Client, path: str, body: Any) -> list[Any]:
    async with client.session.post(client.server.url + path, json=body) as response:
        assert response.headers["Content-Type"].startswith("text/event-stream")
        lines = (await response.text()).split("\n\n")
    assert lines[-2:] == ["data: [DONE]", ""]
    return [json.loads(line.removeprefix("data: ")) for line in lines[:-2]]


async def test_a_streamed_chat_adds_up_to_the_same_answer(serve: Serve) -> None:
    async with serve(mean=300) as client:
        message = (await client.chat())[1]["choices"][0]["message"]
        body = {"messages": [{"role": "user", "content": "What is 2+2?"}], "stream": True}
        frames = await _frames(client, "/v1/chat/completions", body | {"stream_options": {"include_usage": True}})
        deltas = [frame["choices"][0]["delta"] for frame in frames if frame["choices"]]
        assert "".join(delta.get("content") or "" for delta in deltas).strip() == message["content"]
        assert "".join(delta.get("reasoning_content") or "" for delta in deltas).strip() == message["reasoning_content"].strip()
        assert frames[-2]["choices"][0]["finish_reason"] == "stop"
        assert frames[-1]["usage"]["completion_tokens"] > 0


async def test_a_streamed_generate_is_cumulative(serve: Serve) -> None:
    async with serve(speed=10) as client:
        frames = await _frames(client, "/generate", {"text": "x", "stream": True, "sampling_params": {"max_new_tokens": 200}})
        assert len(frames) > 2
        assert all(frames[-1]["text"].startswith(frame["text"].rstrip("\ufffd")) for frame in frames)
        assert frames[-1]["meta_info"]["completion_tokens"] == len(frames[-1]["output_ids"])
        assert frames[0]["meta_info"]["finish_reason"] is None


TOOL = {
    "type": "function",
    "function": {
        "name": "add",
        "parameters": {"type": "object", "properties": {"a": {"type": "integer"}, "how": {"type": "string"}}},
    },
}


async def test_tools_are_sometimes_called(serve: Serve) -> None:
    async with serve(rule=LengthRule(mean=50, tool_share=0.5), tool_call_parser="qwen25") as client:
        choices = [(await client.chat(f"p{n}", tools=[TOOL]))[1]["choices"][0] for n in range(20)]
        called = [choice for choice in choices if choice["finish_reason"] == "tool_calls"]
        assert 0 < len(called) < 20
        (call,) = called[0]["message"]["tool_calls"]
        assert call["function"]["name"] == "add"
        assert set(json.loads(call["function"]["arguments"])) == {"a", "how"}
        assert called[0]["message"]["content"] == ""


async def test_without_a_tool_parser_the_call_stays_in_the_text(serve: Serve) -> None:
    async with serve(rule=LengthRule(tool_share=1.0)) as client:
        _, reply = await client.chat(tools=[TOOL])
        assert reply["choices"][0]["message"]["tool_calls"] is None
        assert reply["choices"][0]["message"]["content"].startswith("<tool_call>")


async def test_tokenize_counts(serve: Serve) -> None:
    async with serve() as client:
        _, reply = await client.post("/v1/tokenize", {"prompt": "The answer is 42."})
        assert reply["count"] == len(reply["tokens"]) == len(tokens.encode("The answer is 42."))


async def test_detokenize_gives_the_text_of_ids(serve: Serve) -> None:
    async with serve() as client:
        _, reply = await client.post("/detokenize", {"tokens": tokens.encode("The answer is 42.")})
        assert reply == {"text": "The answer is 42."}
        status, reply = await client.post("/detokenize", {"tokens": [10**9]})
        assert status == 400


async def test_reasoning_that_is_asked_for_unsplit_stays_in_the_text(serve: Serve) -> None:
    async with serve() as client:
        _, reply = await client.chat(separate_reasoning=False, return_token_ids=True)
        message = reply["choices"][0]["message"]
        assert message["reasoning_content"] is None
        assert "<think>" in message["content"]
        assert "</think>" in message["content"]


async def test_messages_may_hold_parts_tool_calls_and_lone_surrogates(serve: Serve) -> None:
    async with serve() as client:
        body = {
            "messages": [
                {"role": "user", "content": [{"type": "text", "text": "part one"}]},
                {
                    "role": "assistant",
                    "content": None,
                    "tool_calls": [{"id": "1", "function": {"name": "f", "arguments": "{}"}}],
                },
                {"role": "tool", "content": "half \ud835"},
            ],
            "return_prompt_token_ids": True,
        }
        data = json.dumps(body).encode()
        async with client.session.post(client.server.url + "/v1/chat/completions", data=data) as response:
            reply = await response.json()
        prompt = tokens.decode(reply["choices"][0]["prompt_token_ids"])
        assert "part one" in prompt
        assert "half \ud835" in prompt
        assert '"name": "f"' in prompt


async def test_the_api_profile_prices_its_answers_and_has_no_token_ids(serve: Serve) -> None:
    prices = Prices(input_usd_per_mtok=1.0, output_usd_per_mtok=10.0)
    async with serve(profile=Profile.API, prices=prices, reasoning_parser=None) as client:
        _, reply = await client.chat(**ALL_IDS)
        assert "response_token_ids" not in reply["choices"][0]
        usage = reply["usage"]
        assert usage["cost"] == pytest.approx((usage["prompt_tokens"] + 10 * usage["completion_tokens"]) / 1e6)
        assert 0 < usage["completion_tokens_details"]["reasoning_tokens"] < usage["completion_tokens"]
        assert (await client.get("/v1/models"))[0] == 200
        for path in ("/health", "/v1/loads", "/metrics", "/generate"):
            assert (await client.get(path))[0] == 404
        body = {"messages": [{"role": "user", "content": "x"}], "stream": True}
        assert (await _frames(client, "/v1/chat/completions", body))[-1]["usage"]["cost"] > 0


async def test_the_api_profile_limits_requests_a_minute(serve: Serve) -> None:
    async with serve(profile=Profile.API, requests_per_minute=2, speed=60) as client:
        replies = [await client.chat(f"p{n}", max_tokens=1) for n in range(3)]
        assert [status for status, _ in replies] == [200, 200, 429]
        assert "try again in" in replies[2][1]["message"]
        async with client.session.post(
            client.server.url + "/v1/chat/completions", json={"messages": [{"role": "user", "content": "x"}]}
        ) as response:
            assert response.headers["x-ratelimit-limit-requests"] == "2"
            assert response.headers["x-ratelimit-remaining-requests"] == "0"
            assert int(response.headers["Retry-After"]) >= 1
        await asyncio.sleep(1.05)
        assert (await client.chat("p9", max_tokens=1))[0] == 200


async def test_a_server_without_service_time_answers_at_once(serve: Serve) -> None:
    async with serve(instant=True, speed=1.0, mean=5000, log_sd=0) as client:
        started = time.monotonic()
        _, reply = await client.chat()
        assert time.monotonic() - started < 2
        assert reply["usage"]["completion_tokens"] == 5000
        assert await client.metric("generation_tokens_total") == 5000
        assert await client.metric("realtime_tokens_total", mode="decode") == 4999
