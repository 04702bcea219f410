"""The fault kit: every switch does what its name says, and stops when it is switched off."""

from __future__ import annotations

import asyncio
import json
import time
from typing import Any

import aiohttp
import pytest

from backend.simulator import tokens
from backend.simulator.faults import KINDS, Faults, UnknownFaultError, parse_fault

from .conftest import Client, Serve


async def test_an_unknown_fault_is_refused_with_the_names_there_are(serve: Serve) -> None:
    async with serve() as client:
        status, reply = await client.post("/simulator/faults", {"hangs": None})
        assert status == 400
        assert "hang-at-start" in reply["error"]["message"]
        assert set((await client.json("/simulator/faults"))["known"]) == set(KINDS)


@pytest.mark.parametrize(("name", "argument"), [("hang", "soon"), ("http-500", "0.5:x"), ("decay", "x:2")])
def test_a_wrong_argument_is_refused(name: str, argument: str) -> None:
    with pytest.raises(UnknownFaultError, match=name):
        parse_fault(name, argument)


def test_a_share_strikes_that_part_of_the_requests_and_a_prompt_always_alike() -> None:
    faults = Faults(seed=4)
    faults.switch_on(parse_fault("http-500", 0.3))
    assert sum(faults.strikes("http-500") for _ in range(3000)) / 3000 == pytest.approx(0.3, abs=0.04)
    faults.switch_on(parse_fault("reject-400", "0.3"))
    struck = [faults.strikes_prompt("reject-400", f"p{n}") for n in range(3000)]
    assert sum(struck) / 3000 == pytest.approx(0.3, abs=0.04)
    assert struck == [faults.strikes_prompt("reject-400", f"p{n}") for n in range(3000)]


async def _decoded(client: Client) -> float:
    return await client.metric("realtime_tokens_total", mode="decode") or 0.0


async def _until_decoding(client: Client) -> None:
    deadline = time.monotonic() + 20
    while await _decoded(client) == 0:
        assert time.monotonic() < deadline
        await asyncio.sleep(0.02)


async def test_a_hung_server_is_healthy_but_nothing_moves(serve: Serve) -> None:
    async with serve(speed=10, mean=1000, log_sd=0) as client:
        task = asyncio.create_task(client.chat())
        await _until_decoding(client)
        await client.faults(hang=None)
        before = (await _decoded(client), (await client.json("/v1/loads"))["loads"])
        await asyncio.sleep(0.2)
        assert (await _decoded(client), (await client.json("/v1/loads"))["loads"]) == before
        assert (await client.get("/health"))[0] == 200
        with pytest.raises(asyncio.TimeoutError):
            async with client.session.get(client.server.url + "/server_info", timeout=aiohttp.ClientTimeout(total=0.2)):
                pass
        assert not task.done()
        await client.faults(hang=False)
        assert (await task)[0] == 200


async def test_a_hung_server_aborts_only_when_it_wakes_up(serve: Serve) -> None:
    async with serve(speed=10, mean=1000, log_sd=0) as client:
        task = asyncio.create_task(client.chat(rid="r"))
        await _until_decoding(client)
        await client.faults(hang=None)
        assert (await client.post("/abort_request", {"rid": "r"}))[0] == 200
        await asyncio.sleep(0.1)
        assert not task.done()
        await client.faults(hang=False)
        assert (await task)[1]["choices"][0]["finish_reason"] == "abort"


async def test_a_hang_may_end_by_itself(serve: Serve) -> None:
    async with serve() as client:
        await client.faults(hang=0.1)
        assert (await client.chat())[0] == 200


async def test_health_fails_under_load_for_a_while_and_generation_goes_on(serve: Serve) -> None:
    async with serve(faults=(("health-503-under-load", "0.4"),)) as client:
        assert (await client.get("/health"))[0] == 200
        assert (await client.chat())[0] == 200
        assert (await client.get("/health"))[0] == 503
        assert (await client.get("/ready"))[0] == 503
        assert (await client.chat())[0] == 200
        await asyncio.sleep(0.45)
        assert (await client.get("/health"))[0] == 200


async def test_a_decaying_server_is_fourteen_times_slower(serve: Serve) -> None:
    async with serve(speed=10, mean=50_000, log_sd=0) as client:
        task = asyncio.create_task(client.chat())
        await _until_decoding(client)
        fast = client.server.engine.scheduler.seconds_of_steps(1)
        await client.faults(decay=0)
        await asyncio.sleep(0.02)
        assert client.server.engine.scheduler.seconds_of_steps(1) == pytest.approx(14 * fast)
        await client.faults(decay="0:3")
        await asyncio.sleep(0.02)
        assert client.server.engine.scheduler.seconds_of_steps(1) == pytest.approx(3 * fast)
        await client.post("/abort_request", {"abort_all": True})
        await task


async def test_counters_reset_in_the_middle_of_a_life(serve: Serve) -> None:
    async with serve(mean=300, log_sd=0) as client:
        await client.chat()
        assert await _decoded(client) == 299
        await client.faults(reset_counters=0)
        await asyncio.sleep(0.02)
        assert await _decoded(client) == 0
        assert await client.metric("generation_tokens_total") is None
        await client.chat("another")
        assert await client.metric("generation_tokens_total") == 300


async def test_frozen_gauges_keep_their_values_while_counters_move(serve: Serve) -> None:
    async with serve(speed=20, mean=1500, log_sd=0) as client:
        task = asyncio.create_task(client.chat())
        await _until_decoding(client)
        assert await client.metric("num_running_reqs") == 1
        await client.faults(gauge_frozen=None)
        before = await _decoded(client)
        await task
        assert await client.metric("num_running_reqs") == 1
        assert await _decoded(client) > before


async def test_an_abort_may_come_with_http_200(serve: Serve) -> None:
    async with serve(mean=400, log_sd=0) as client:
        await client.faults(abort_200=None)
        status, reply = await client.chat()
        assert (status, reply["choices"][0]["finish_reason"]) == (200, "abort")
        assert reply["usage"]["completion_tokens"] == 200


async def test_aborts_and_disconnects_may_be_ignored(serve: Serve) -> None:
    async with serve(speed=20, mean=20_000, log_sd=0) as client:
        await client.faults(ignore_abort=None, ignore_disconnects=None)
        task = asyncio.create_task(client.chat(rid="r"))
        await _until_decoding(client)
        assert (await client.post("/abort_request", {"rid": "r"}))[0] == 200
        assert (await client.post("/abort_request", {"abort_all": True}))[0] == 200
        task.cancel()
        await asyncio.sleep(0.5)
        assert client.server.engine.scheduler.running_count == 1
        await client.faults(ignore_abort=False, ignore_disconnects=False)
        await client.post("/abort_request", {"abort_all": True})


@pytest.mark.parametrize("status", [500, 503, 429])
async def test_requests_fail_with_the_status_asked_for(serve: Serve, status: int) -> None:
    async with serve() as client:
        await client.faults(**{f"http_{status}": 1})
        body = {"messages": [{"role": "user", "content": "x"}]}
        async with client.session.post(client.server.url + "/v1/chat/completions", json=body) as response:
            assert response.status == status
            assert response.headers.get("Retry-After") == ("1" if status == 429 else None)


async def test_a_retry_may_succeed_but_a_rejected_prompt_stays_rejected(serve: Serve) -> None:
    async with serve() as client:
        await client.faults(http_503=0.5)
        assert {(await client.chat())[0] for _ in range(20)} == {200, 503}
        await client.faults(http_503=False, reject_400=0.5)
        outcomes = {n: {(await client.chat(f"p{n}"))[0] for _ in range(3)} for n in range(20)}
        assert all(len(statuses) == 1 for statuses in outcomes.values())
        assert {status for statuses in outcomes.values() for status in statuses} == {200, 400}


async def test_the_connection_may_be_closed_instead_of_an_answer(serve: Serve) -> None:
    async with serve() as client:
        await client.faults(disconnect=None)
        with pytest.raises((aiohttp.ServerDisconnectedError, aiohttp.ClientOSError)):
            await client.chat()


async def test_the_first_byte_may_be_slow(serve: Serve) -> None:
    async with serve(speed=1, instant=True) as client:
        await client.faults(slow_first_byte=0.3)
        started = time.monotonic()
        await client.chat()
        assert time.monotonic() - started >= 0.3


async def _one(client: Client, **faults: Any) -> Any:
    await client.faults(**faults)
    status, reply = await client.chat(return_token_ids=True, return_meta_info=True, max_tokens=3000)
    assert status == 200
    return reply


async def test_usage_may_be_null_or_wrong(serve: Serve) -> None:
    async with serve() as client:
        assert (await _one(client, usage_null=None))["usage"] is None
        reply = await _one(client, usage_null=False, wrong_usage=None)
        assert reply["usage"]["completion_tokens"] == len(reply["choices"][0]["response_token_ids"]) + 7


async def test_content_may_be_null_with_length(serve: Serve) -> None:
    async with serve() as client:
        (choice,) = (await _one(client, content_null_length=None))["choices"]
        assert (choice["message"]["content"], choice["finish_reason"]) == (None, "length")


async def test_content_may_be_empty_with_stop(serve: Serve) -> None:
    async with serve() as client:
        (choice,) = (await _one(client, empty_stop=None))["choices"]
        assert (choice["message"]["content"], choice["finish_reason"]) == ("", "stop")


async def test_a_thought_may_never_be_closed(serve: Serve) -> None:
    async with serve() as client:
        (choice,) = (await _one(client, unclosed_think=None))["choices"]
        assert (choice["message"]["content"], choice["finish_reason"]) == ("", "stop")
        assert tokens.END_THINK not in choice["response_token_ids"]


async def test_a_text_may_loop_to_the_cap(serve: Serve) -> None:
    async with serve() as client:
        (choice,) = (await _one(client, loop_text=None))["choices"]
        assert choice["finish_reason"] == "length"
        assert choice["message"]["reasoning_content"].count("\\boxed{460}") > 100


async def test_odd_characters_arrive_unchanged(serve: Serve) -> None:
    async with serve() as client:
        (choice,) = (await _one(client, u2028=None))["choices"]
        assert {"\u2028", "\u0085", "\x00"} <= set(choice["message"]["content"])
        (choice,) = (await _one(client, u2028=False, lone_surrogate=None))["choices"]
        assert "\ud835" in choice["message"]["content"]
        assert tokens.decode(choice["response_token_ids"]).endswith(choice["message"]["content"])


async def test_a_lone_surrogate_is_sent_as_a_json_escape(serve: Serve) -> None:
    async with serve() as client:
        await client.faults(lone_surrogate=None)
        body = {"messages": [{"role": "user", "content": "x"}]}
        async with client.session.post(client.server.url + "/v1/chat/completions", json=body) as response:
            assert b"\\ud835" in await response.read()


async def test_meta_info_may_hold_a_huge_integer_and_a_wide_object(serve: Serve) -> None:
    async with serve() as client:
        info = (await _one(client, big_id=None))["choices"][0]["meta_info"]
        assert info["request_number"] > 2**63
        assert len(info["many_keys"]) == 200


async def test_an_answer_may_be_six_megabytes(serve: Serve) -> None:
    async with serve(speed=5000) as client:
        await client.faults(answer_6mb=None)
        _, reply = await client.chat(return_token_ids=True)
        (choice,) = reply["choices"]
        assert len(choice["message"]["content"]) > 6_000_000
        assert tokens.decode(choice["response_token_ids"]) == choice["message"]["content"]


async def test_the_cap_of_speculation_may_be_imposed(serve: Serve) -> None:
    async with serve(speed=20, mean=2000, log_sd=0, faults=(("spec-cap-48", None),)) as client:
        tasks = [asyncio.create_task(client.chat(f"p{n}")) for n in range(60)]
        await asyncio.sleep(0.3)
        assert (await client.json("/v1/loads"))["loads"][0]["max_running_requests"] == 48
        assert client.server.engine.scheduler.running_count == 48
        await client.post("/abort_request", {"abort_all": True})
        await asyncio.gather(*tasks)


async def test_speculation_caps_at_48_unless_a_number_is_given(serve: Serve) -> None:
    for given, wanted in ((None, 48), (100, 100)):
        async with serve(speculative_algorithm="EAGLE", max_running_requests=given) as client:
            assert (await client.json("/v1/loads"))["loads"][0]["max_running_requests"] == wanted
            _, reply = await client.chat(return_meta_info=True)
            assert reply["choices"][0]["meta_info"]["spec_accept_length"] == pytest.approx(2.6)


def test_every_fault_can_be_given_without_an_argument() -> None:
    for name, kind in KINDS.items():
        assert parse_fault(name, None).value == kind.default
    assert json.dumps({name: kind.meaning for name, kind in KINDS.items()})
