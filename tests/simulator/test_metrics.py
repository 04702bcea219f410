"""The metrics page."""

from __future__ import annotations

import asyncio
import time

import pytest
from prometheus_client.parser import text_string_to_metric_families

from .conftest import Serve

RANK = 'engine_type="unified",model_name="sim/model",moe_ep_rank="0",pp_rank="0",tp_rank="0"'


async def test_a_prometheus_parser_reads_the_page(serve: Serve) -> None:
    async with serve() as client:
        await client.chat()
        _, text = await client.get("/metrics")
        families = {family.name: family for family in text_string_to_metric_families(text)}
        for name in (
            "num_running_reqs",
            "num_queue_reqs",
            "gen_throughput",
            "token_usage",
            "cache_hit_rate",
            "spec_accept_length",
        ):
            assert families[f"sglang:{name}"].type == "gauge"
        for name in ("realtime_tokens", "prompt_tokens", "generation_tokens", "num_requests"):
            assert families[f"sglang:{name}"].type == "counter"
        for name in ("time_to_first_token_seconds", "e2e_request_latency_seconds"):
            assert families[f"sglang:{name}"].type == "histogram"


async def test_labels_are_those_of_a_real_server(serve: Serve) -> None:
    async with serve() as client:
        await client.chat()
        _, text = await client.get("/metrics")
        assert f"\nsglang:num_running_reqs{{{RANK}}} " in text
        assert '\nsglang:realtime_tokens_total{engine_type="unified",mode="decode",model_name="sim/model"' in text
        assert '\nsglang:generation_tokens_total{engine_type="unified",is_streaming="false",model_name="sim/model"} ' in text
        assert 'sglang:time_to_first_token_seconds_bucket{engine_type="unified",is_streaming="false",le="0.1",' in text


@pytest.mark.parametrize(
    ("accept", "spelling"),
    [
        ("text/plain;version=0.0.4", "sglang:"),
        ("*/*", "sglang:"),
        ("application/openmetrics-text;version=1.0.0", "sglang_"),
        ("application/openmetrics-text;version=1.0.0;escaping=allow-utf-8", "sglang:"),
        ("text/plain;escaping=underscores", "sglang_"),
    ],
)
async def test_the_accept_header_decides_the_spelling(serve: Serve, accept: str, spelling: str) -> None:
    async with serve() as client:
        _, text = await client.get("/metrics", Accept=accept)
        assert f"{spelling}num_running_reqs{{" in text


async def test_live_tokens_move_while_requests_run_and_finished_ones_only_at_the_end(serve: Serve) -> None:
    async with serve(speed=10, mean=1000, log_sd=0) as client:
        task = asyncio.create_task(client.chat())
        deadline = time.monotonic() + 10
        while not await client.metric("realtime_tokens_total", mode="decode"):
            assert time.monotonic() < deadline
            await asyncio.sleep(0.02)
        assert not task.done()
        assert await client.metric("generation_tokens_total") is None
        await task
        assert await client.metric("generation_tokens_total", is_streaming="false") == 1000
        assert await client.metric("realtime_tokens_total", mode="decode") == 999


async def test_the_throughput_gauge_shows_the_curve_and_falls_to_zero_when_idle(serve: Serve) -> None:
    async with serve(speed=20, mean=50_000, log_sd=0) as client:
        tasks = [asyncio.create_task(client.chat(f"p{n}")) for n in range(8)]
        deadline = time.monotonic() + 20
        while await client.metric("gen_throughput") != pytest.approx(370 * 20, rel=0.05):
            assert time.monotonic() < deadline
            await asyncio.sleep(0.05)
        assert await client.metric("num_running_reqs") == 8
        await client.post("/abort_request", {"abort_all": True})
        await asyncio.gather(*tasks)
        assert await client.metric("gen_throughput") == 0
        assert await client.metric("num_running_reqs") == 0


async def test_retractions_are_counted_by_every_rank(serve: Serve) -> None:
    async with serve(speed=500, mean=800, log_sd=0, max_total_tokens=2500, tp_size=2) as client:
        replies = await asyncio.gather(*[client.chat(f"p{n}", max_tokens=900, return_meta_info=True) for n in range(6)])
        assert {reply["usage"]["completion_tokens"] for _, reply in replies} == {800}
        retracted = sum(reply["choices"][0]["meta_info"]["num_retractions"] for _, reply in replies)
        assert retracted > 0
        for rank in ("0", "1"):
            assert await client.metric("num_retracted_requests_total", tp_rank=rank) == retracted


async def test_cached_prompt_tokens_are_counted(serve: Serve) -> None:
    async with serve(enable_cache_report=True) as client:
        prompt = "the same long beginning " * 30
        await client.chat(prompt)
        _, second = await client.chat(prompt)
        cached = second["usage"]["prompt_tokens_details"]["cached_tokens"]
        assert 0 < cached < second["usage"]["prompt_tokens"]
        assert await client.metric("cached_tokens_total", cache_source="device") == cached
        assert (await client.post("/flush_cache", {}))[0] == 200
        _, third = await client.chat(prompt)
        assert third["usage"]["prompt_tokens_details"]["cached_tokens"] == 0
