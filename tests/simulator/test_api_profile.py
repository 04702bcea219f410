"""The paid API that the simulator plays: its streams, how they break, its 429s and its own bill."""

from __future__ import annotations

import asyncio
import email.utils
import json
import time
from typing import Any

import aiohttp
import pytest

from backend.simulator.settings import Prices, Profile

from .conftest import Client, Serve

BODY = {"messages": [{"role": "user", "content": "x" * 400}], "stream": True, "stream_options": {"include_usage": True}}
PRICES = Prices(input_usd_per_mtok=1.0, output_usd_per_mtok=10.0, cached_usd_per_mtok=0.1)


async def _stream(client: Client, **body: Any) -> tuple[int, dict[str, str], list[Any], bool]:
    """Status, headers, frames, and whether the stream ended as it should."""
    async with client.session.post(client.server.url + "/v1/chat/completions", json={**BODY, **body}) as response:
        if response.status != 200:
            return response.status, dict(response.headers), [await response.json()], True
        data = b""
        try:
            async for piece in response.content.iter_any():
                data += piece
        except aiohttp.ClientPayloadError:
            pass
    lines = [line.removeprefix(b"data: ") for line in data.split(b"\n\n") if line]
    done = bool(lines) and lines[-1] == b"[DONE]"
    return 200, {}, [json.loads(line) for line in lines if line != b"[DONE]" and line.endswith(b"}")], done


async def _bill(client: Client, generations: int) -> Any:
    deadline = time.monotonic() + 10
    while (bill := await client.json("/simulator/bill"))["generations"] < generations:
        assert time.monotonic() < deadline
        await asyncio.sleep(0.01)
    return bill


async def test_a_stream_comes_in_chunks_and_names_model_and_provider(serve: Serve) -> None:
    async with serve(profile=Profile.API, chunk_tokens=25, mean=200, log_sd=0, speed=10) as client:
        _, _, frames, done = await _stream(client, max_tokens=200)
    assert done
    assert 6 <= len(frames) <= 13
    assert {(frame["model"], frame["provider"]) for frame in frames} == {("sim/model", "Simulated Inference")}


async def test_the_bill_is_what_the_answers_said_with_cached_tokens_at_their_own_price(serve: Serve) -> None:
    async with serve(profile=Profile.API, prices=PRICES) as client:
        usages = [(await _stream(client))[2][-1]["usage"] for _ in range(3)]
        bill = await _bill(client, 3)
    assert sum(usage["cost"] for usage in usages) == pytest.approx(bill["usd"], abs=1e-12)
    assert bill["cached_tokens"] > 0
    prompt, cached, completion = bill["prompt_tokens"], bill["cached_tokens"], bill["completion_tokens"]
    assert bill["usd"] == pytest.approx(((prompt - cached) + 0.1 * cached + 10 * completion) / 1e6, abs=1e-12)


@pytest.mark.parametrize("fault", ["cut-stream", "stream-error"])
async def test_a_stream_that_breaks_is_billed_for_what_was_generated(serve: Serve, fault: str) -> None:
    async with serve(profile=Profile.API, prices=PRICES, mean=2000, log_sd=0, speed=50) as client:
        await client.faults(**{fault: 1})
        _, _, frames, done = await _stream(client, max_tokens=2000)
        assert not done
        assert not any(frame.get("usage") for frame in frames)
        bill = await _bill(client, 1)
        assert 900 <= bill["completion_tokens"] < 2000
        told = await client.json(f"/v1/generation?id={frames[0]['id']}")
    assert told["data"]["total_cost"] == pytest.approx(bill["usd"], abs=1e-12)


async def test_a_stream_that_stalls_says_nothing_more_and_stays_open(serve: Serve) -> None:
    async with serve(profile=Profile.API, mean=300, log_sd=0) as client:
        await client.faults(stall_stream=1)
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(_stream(client), 1.0)


async def test_a_429_tells_how_long_to_wait_in_seconds_as_a_date_or_in_words(serve: Serve) -> None:
    async with serve(profile=Profile.API) as client:
        await client.faults(http_429=1)
        assert (await _stream(client))[1]["Retry-After"] == "1"
        await client.faults(retry_after_date=None)
        date = (await _stream(client))[1]["Retry-After"]
        assert email.utils.parsedate_to_datetime(date).timestamp() == pytest.approx(time.time(), abs=3)
        await client.faults(retry_after_date=False, retry_in_words=None)
        status, headers, frames, _ = await _stream(client)
    assert (status, "Retry-After" in headers) == (429, False)
    assert "try again in 120ms" in frames[0]["message"]


@pytest.mark.parametrize(("fault", "status"), [("http-401", 401), ("http-402", 402), ("flagged-403", 403)])
async def test_who_may_not_ask_is_refused_in_words(serve: Serve, fault: str, status: int) -> None:
    async with serve(profile=Profile.API) as client:
        await client.faults(**{fault: 1})
        assert (await _stream(client))[0] == status


async def test_another_model_a_missing_cost_and_no_content_are_played(serve: Serve) -> None:
    async with serve(profile=Profile.API) as client:
        await client.faults(other_model=1, cost_missing=None, content_null_length=1)
        _, _, frames, _ = await _stream(client)
    assert frames[0]["model"] == "somebody/else"
    assert "cost" not in frames[-1]["usage"]
    assert [frame["choices"][0]["finish_reason"] for frame in frames if frame["choices"]][-1] == "length"
    assert not any(frame["choices"][0]["delta"].get("content") for frame in frames if frame["choices"])
