"""What the server tells about itself, in the shape a real 0.5.23 uses."""

from __future__ import annotations

import asyncio
import time

import pytest

from backend.simulator.settings import Profile

from .conftest import Client, Serve

LOAD_FIELDS = (
    "timestamp dp_rank num_running_reqs num_waiting_reqs num_waiting_uncached_tokens num_used_tokens num_total_tokens "
    "num_active_tokens num_prealloc_ready_tokens max_total_num_tokens max_running_requests token_usage gen_throughput "
    "cache_hit_rate utilization total_prefill_uncached_tokens total_prefill_busy_us decode_moments memory disaggregation queues"
)
MODEL_INFO_FIELDS = (
    "model_path served_model_name tokenizer_path is_generation preferred_sampling_params weight_version load_format "
    "reasoning_parser tool_call_parser disaggregation_mode model_type architectures"
)


async def test_a_server_that_is_up_says_so_everywhere(serve: Serve) -> None:
    async with serve() as client:
        for path in ("/ready", "/health", "/health_generate"):
            assert (await client.get(path))[0] == 200


async def test_model_info_and_models_have_the_real_fields(serve: Serve) -> None:
    async with serve(served_model_name="tiny", context_length=4096) as client:
        assert set(MODEL_INFO_FIELDS.split()) <= set(await client.json("/model_info"))
        (model,) = (await client.json("/v1/models"))["data"]
        assert list(model) == ["id", "object", "created", "owned_by", "root", "parent", "max_model_len"]
        assert (model["id"], model["max_model_len"]) == ("tiny", 4096)


async def test_server_info_tells_flags_version_and_internal_state(serve: Serve) -> None:
    async with serve(max_running_requests=64, max_total_tokens=65536) as client:
        for path in ("/server_info", "/get_server_info"):
            info = await client.json(path)
            assert info["version"] == "0.5.23"
            assert info["max_running_requests"] == 64
            assert info["max_total_num_tokens"] == 65536
            (state,) = info["internal_states"]
            assert {"last_gen_throughput", "effective_max_running_requests_per_dp", "memory_usage"} <= set(state)
            assert "api_key" not in info


async def test_loads_have_the_real_fields_and_no_moments_before_the_first_decode_step(serve: Serve) -> None:
    async with serve() as client:
        reply = await client.json("/v1/loads")
        assert list(reply) == ["timestamp", "version", "accelerator", "num_accelerators", "loads"]
        (load,) = reply["loads"]
        assert set(load) == set(LOAD_FIELDS.split())
        assert load["decode_moments"] is None
        assert abs(load["timestamp"] - time.time()) < 2
        core = (await client.json("/v1/loads?include=core"))["loads"][0]
        assert "memory" not in core


async def test_loads_count_what_runs_and_waits_and_what_was_decoded(serve: Serve) -> None:
    async with serve(speed=20, max_running_requests=2, mean=1500, log_sd=0) as client:
        tasks = [asyncio.create_task(client.chat(f"prompt {n}")) for n in range(3)]
        load = await _until_load(client, lambda load: load["num_running_reqs"] == 2)
        assert load["num_waiting_reqs"] == 1
        assert load["num_used_tokens"] > 0
        await asyncio.gather(*tasks)
        load = await _until_load(client, lambda load: load["num_running_reqs"] == 0)
        assert load["decode_moments"][5] == pytest.approx(3 * 1499)
        assert load["num_used_tokens"] == 0


async def _until_load(client: Client, wanted):  # type: ignore[no-untyped-def]
    deadline = time.monotonic() + 20
    while True:
        load = (await client.json("/v1/loads"))["loads"][0]
        if wanted(load):
            return load
        assert time.monotonic() < deadline, load
        await asyncio.sleep(0.02)


async def test_the_heartbeat_is_the_inner_timestamp_and_stands_still_while_paused(serve: Serve) -> None:
    async with serve() as client:
        await client.json("/v1/loads")
        await client.post("/pause_generation", {"mode": "in_place"})
        first = await client.json("/v1/loads")
        await asyncio.sleep(0.05)
        second = await client.json("/v1/loads")
        assert first["loads"][0]["timestamp"] == second["loads"][0]["timestamp"]
        assert first["timestamp"] != second["timestamp"]


async def test_health_of_a_paused_server_blocks_and_then_fails_and_leaves_it_not_ready(serve: Serve) -> None:
    async with serve(speed=200) as client:
        await client.post("/pause_generation", {"mode": "in_place"})
        started = time.monotonic()
        assert (await client.get("/health"))[0] == 503
        assert time.monotonic() - started >= 20 / 200 * 0.9
        assert (await client.get("/ready"))[0] == 503
        await client.post("/continue_generation", {})
        assert (await client.get("/health"))[0] == 200
        assert (await client.get("/ready"))[0] == 200


async def test_keys_open_what_they_open_in_sglang(serve: Serve) -> None:
    async with serve(api_key="k1", admin_api_key="k2") as client:
        for path in ("/health", "/ready", "/metrics"):
            assert (await client.get(path))[0] == 200
        assert (await client.get("/v1/loads"))[0] == 401
        assert (await client.get("/v1/loads", Authorization="Bearer k1"))[0] == 200
        assert (await client.post("/abort_request", {"rid": "x"}, Authorization="Bearer k1"))[0] == 401
        assert (await client.post("/abort_request", {"rid": "x"}, Authorization="Bearer k2"))[0] == 200
        assert (await client.chat())[0] == 401


async def test_without_enable_metrics_there_is_no_metrics_page_and_no_throughput(serve: Serve) -> None:
    async with serve(enable_metrics=False) as client:
        assert (await client.get("/metrics"))[0] == 404
        await client.chat()
        assert (await client.json("/v1/loads"))["loads"][0]["gen_throughput"] == 0.0


async def test_the_old_profile_has_the_old_endpoints_and_names_only(serve: Serve) -> None:
    async with serve(profile=Profile.OLD) as client:
        for path in ("/ready", "/v1/loads", "/server_info", "/model_info"):
            assert (await client.get(path))[0] == 404
        assert (await client.post("/pause_generation", {}))[0] == 404
        assert (await client.json("/get_load"))[0].keys() >= {"num_reqs", "num_waiting_reqs", "num_tokens"}
        assert (await client.json("/get_server_info"))["version"] == "0.4.6"
        await client.chat()
        assert await client.metric("generation_tokens_total", model_name="sim/model") is not None
        assert await client.metric("realtime_tokens_total") is None
        assert await client.metric("total_retracted_reqs") == 0
