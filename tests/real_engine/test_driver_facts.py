"""What Headway's driver and telemetry take for granted about SGLang, asked of the real one."""

from __future__ import annotations

import asyncio
import json
import subprocess
import time
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from real_server import RealServer, complete, load_of, metric_of, post, request_body

from backend.engine_cpu.place import MAX_RUNNING_REQUESTS, engine_env

pytestmark = [pytest.mark.real_engine, pytest.mark.timeout(400)]

DATA = Path(__file__).resolve().parents[1] / "data"
END_TOKEN_ID = 3

DECODE = """
import json, sys
from tokenizers import Tokenizer
tokenizer = Tokenizer.from_file(sys.argv[1])
json.dump([tokenizer.decode(ids, skip_special_tokens=True) for ids in json.load(sys.stdin)], sys.stdout)
"""


@pytest.fixture
async def client(real_server: RealServer) -> AsyncIterator[aiohttp.ClientSession]:
    async with real_server.connect() as session:
        yield session


async def eventually(condition: Callable[[], Awaitable[bool]], limit_s: float = 30) -> None:
    deadline = time.monotonic() + limit_s
    while not await condition():
        assert time.monotonic() < deadline, "it did not come about in time"
        await asyncio.sleep(0.1)


def prompts(name: str, key: str) -> list[str]:
    with (DATA / f"{name}.jsonl").open(encoding="utf-8") as lines:
        return [json.loads(line)[key] for line in lines]


async def test_a_completion_carries_ids_tokens_and_times(client: aiohttp.ClientSession) -> None:
    rid = uuid.uuid4().hex
    before = time.time()
    status, answer = await complete(client, rid=rid, ignore_eos=True)
    assert status == 200
    assert answer["id"] == rid
    [choice] = answer["choices"]
    meta = choice["meta_info"]
    assert choice["finish_reason"] == "length"
    assert meta["finish_reason"] == {"type": "length", "length": 24}
    assert len(choice["response_token_ids"]) == 24 == meta["completion_tokens"] == answer["usage"]["completion_tokens"]
    assert len(choice["prompt_token_ids"]) == meta["prompt_tokens"] == answer["usage"]["prompt_tokens"]
    assert 0 <= meta["cached_tokens"] < meta["prompt_tokens"]
    assert before - 1 < meta["request_received_ts"] < meta["request_finished_ts"] < time.time() + 1
    assert 0 < meta["first_token_latency"] <= meta["e2e_latency"]


async def test_the_ids_decode_to_the_text_exactly(client: aiohttp.ClientSession, real_server: RealServer) -> None:
    asked = prompts("arithmetic", "question")[:24] + prompts("functions", "prompt")[:24]
    answers = await asyncio.gather(
        *[complete(client, messages=[{"role": "user", "content": words}], max_tokens=300) for words in asked]
    )
    choices = [answer["choices"][0] for _, answer in answers]
    command = [str(real_server.place.python), "-c", DECODE, str(real_server.place.model / "tokenizer.json")]
    given = json.dumps([choice["response_token_ids"] for choice in choices])
    decoded = subprocess.run(
        command, input=given, capture_output=True, text=True, encoding="utf-8", timeout=60, check=True, env=engine_env()
    )
    assert json.loads(decoded.stdout) == [choice["message"]["content"] for choice in choices]


async def test_the_end_token_is_among_the_ids_and_counted(client: aiohttp.ClientSession) -> None:
    # Random weights end a text by chance, about once in 1,024 tokens: the bias makes it certain after ten.
    status, answer = await complete(client, max_tokens=500, min_tokens=10, logit_bias={str(END_TOKEN_ID): 100})
    assert status == 200
    [choice] = answer["choices"]
    assert (choice["finish_reason"], choice["matched_stop"]) == ("stop", END_TOKEN_ID)
    assert choice["response_token_ids"][-1] == END_TOKEN_ID
    assert answer["usage"]["completion_tokens"] == len(choice["response_token_ids"])


async def test_an_aborted_request_answers_200_with_what_it_has(client: aiohttp.ClientSession) -> None:
    rid = uuid.uuid4().hex
    running = asyncio.create_task(complete(client, rid=rid, max_tokens=3500, ignore_eos=True))
    await eventually(lambda: _running_at_least(client, 1))
    assert await post(client, "/abort_request", {"rid": rid}) == (200, None)
    status, answer = await running
    [choice] = answer["choices"]
    assert status == 200
    assert choice["finish_reason"] == "abort"
    assert choice["meta_info"]["finish_reason"]["type"] == "abort"
    assert len(choice["response_token_ids"]) == answer["usage"]["completion_tokens"] < 3500


async def test_a_request_aborted_in_the_queue_answers_200_with_nothing(client: aiohttp.ClientSession) -> None:
    crowd = MAX_RUNNING_REQUESTS + 8
    others = [asyncio.create_task(complete(client, max_tokens=700, ignore_eos=True)) for _ in range(crowd)]
    await eventually(lambda: _queued_at_least(client, 8))
    rid = uuid.uuid4().hex
    queued = asyncio.create_task(complete(client, rid=rid))
    await eventually(lambda: _queued_at_least(client, 9))
    await post(client, "/abort_request", {"rid": rid})
    status, answer = await queued
    await post(client, "/abort_request", {"abort_all": True})
    ends = [answer["choices"][0]["finish_reason"] for _, answer in await asyncio.gather(*others)]
    [choice] = answer["choices"]
    assert status == 200
    assert (choice["finish_reason"], choice["message"]["content"], choice["response_token_ids"]) == ("abort", "", [])
    assert "prompt_tokens" not in choice["meta_info"]
    assert ends == ["abort"] * crowd


async def test_aborting_an_unknown_request_is_no_error(client: aiohttp.ClientSession) -> None:
    assert await post(client, "/abort_request", {"rid": uuid.uuid4().hex}) == (200, None)


async def test_a_request_id_in_use_is_refused_with_400(client: aiohttp.ClientSession) -> None:
    rid = uuid.uuid4().hex
    running = asyncio.create_task(complete(client, rid=rid, max_tokens=3500, ignore_eos=True))
    await eventually(lambda: _running_at_least(client, 1))
    status, answer = await complete(client, rid=rid)
    await post(client, "/abort_request", {"rid": rid})
    await running
    assert status == 400
    assert answer["message"] == f"Duplicate request ID detected: {rid}"


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"messages": [{"role": "user", "content": "word " * 6000}]}, "longer than the model's context length"),
        ({"max_tokens": 100_000}, "exceeds the model's maximum context length of 4096 tokens"),
        ({"temperature": -1}, "temperature must be a non-negative finite number"),
        ({"messages": [{"role": "user", "content": "a\ud835b"}]}, "JSON decode error"),
        ({"messages": []}, "Messages cannot be empty"),
        ({"stream": True}, "not supported with streaming"),
    ],
)
async def test_what_cannot_be_done_is_refused_with_400_and_a_message(
    client: aiohttp.ClientSession, changes: dict[str, Any], words: str
) -> None:
    status, answer = await complete(client, **changes)
    assert status == 400
    assert words in answer["message"]
    assert answer["code"] == 400


async def test_nul_line_separators_and_unknown_keys_are_accepted(client: aiohttp.ClientSession) -> None:
    status, _ = await complete(
        client,
        messages=[{"role": "system", "content": "a\u0000b"}, {"role": "user", "content": "c\u2028d"}],
        chat_template_kwargs={"enable_thinking": False},
        seed=7,
        top_k=40,
        no_such_key=1,
    )
    assert status == 200


async def test_probes_need_no_key_and_everything_else_does(real_server: RealServer) -> None:
    async with aiohttp.ClientSession(real_server.url) as stranger:
        statuses = {}
        for path in ("/ready", "/metrics", "/v1/loads", "/server_info"):
            async with stranger.get(path, allow_redirects=False) as answer:
                statuses[path] = answer.status
        refused, _ = await post(stranger, "/v1/chat/completions", request_body())
    assert statuses == {"/ready": 200, "/metrics": 200, "/v1/loads": 401, "/server_info": 401}
    assert refused == 401


async def test_the_key_shows_in_no_command_line_but_in_the_log(real_server: RealServer) -> None:
    commands = [" ".join(process.cmdline()) for process in real_server.session_processes()]
    assert any("sglang::scheduler" in command for command in commands)
    assert not any(real_server.api_key in command for command in commands)
    assert real_server.api_key in real_server.log.read_text(errors="replace")  # so a log must be private


async def test_the_heartbeat_of_an_idle_server_moves(client: aiohttp.ClientSession) -> None:
    first = (await load_of(client))["timestamp"]

    async def moved() -> bool:
        return bool((await load_of(client))["timestamp"] > first)

    await eventually(moved)


async def test_live_counters_move_while_a_long_answer_is_made(client: aiohttp.ClientSession) -> None:
    live, finished = "sglang:realtime_tokens_total", "sglang:generation_tokens_total"
    status, _ = await complete(client, ignore_eos=True)  # so that every counter exists
    assert status == 200
    live_before, finished_before = await metric_of(client, live, 'mode="decode"'), await metric_of(client, finished)
    decoded_before = (await load_of(client))["decode_moments"][5]
    rid = uuid.uuid4().hex
    running = asyncio.create_task(complete(client, rid=rid, max_tokens=3500, ignore_eos=True))

    async def both_moved() -> bool:
        live_now = await metric_of(client, live, 'mode="decode"')
        return bool(live_now > live_before + 50 and (await load_of(client))["decode_moments"][5] > decoded_before)

    await eventually(both_moved)
    assert not running.done()
    assert await metric_of(client, finished) == finished_before
    await post(client, "/abort_request", {"rid": rid})
    await running


async def test_over_a_quiet_phase_the_servers_counters_equal_ours(client: aiohttp.ClientSession) -> None:
    names = ("sglang:generation_tokens_total", "sglang:prompt_tokens_total", "sglang:num_requests_total")
    await eventually(lambda: _idle(client))
    before = [await metric_of(client, name) for name in names]
    answers = await asyncio.gather(*[complete(client, max_tokens=20 + number) for number in range(32)])
    usages = [answer["usage"] for _, answer in answers]
    ours = [sum(u["completion_tokens"] for u in usages), sum(u["prompt_tokens"] for u in usages), len(usages)]

    async def equal() -> bool:
        return [await metric_of(client, name) for name in names] == [b + o for b, o in zip(before, ours, strict=True)]

    await eventually(equal, limit_s=10)


async def _running_at_least(client: aiohttp.ClientSession, count: int) -> bool:
    return bool((await load_of(client))["num_running_reqs"] >= count)


async def _queued_at_least(client: aiohttp.ClientSession, count: int) -> bool:
    return bool((await load_of(client))["num_waiting_reqs"] >= count)


async def _idle(client: aiohttp.ClientSession) -> bool:
    load = await load_of(client)
    return bool(load["num_running_reqs"] == 0 and load["num_waiting_reqs"] == 0)
