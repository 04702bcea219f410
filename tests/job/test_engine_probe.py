"""Probing a server each second: gentle, bounded in time, and right about servers that lack an endpoint."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from typing import Any

import aiohttp
import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer, unused_port

from backend.job.engine_loads import ServerInfo
from backend.job.engine_probe import EngineProbe, EngineSilentError
from backend.telemetry import EngineSample

Probing = Callable[..., EngineProbe]


@dataclass
class Engine:
    """A scripted server: `answers` by path (an int is a status, a callable is awaited); `asked` counts."""

    answers: dict[str, Any] = field(default_factory=dict)
    asked: list[str] = field(default_factory=list)
    headers: dict[str, str] = field(default_factory=dict)
    url: str = ""

    async def answer(self, request: web.Request) -> web.StreamResponse:
        self.asked.append(request.path)
        self.headers = dict(request.headers)
        answer = self.answers.get(request.path, 404)
        if callable(answer):
            answer = await answer()
        if isinstance(answer, int):
            return web.Response(status=answer)
        return web.Response(text=answer) if isinstance(answer, str) else web.json_response(answer)

    def loads(self, **rank: Any) -> None:
        self.answers["/v1/loads"] = {"timestamp": None, "version": "0.5.23", "loads": [{"timestamp": 1000.0, **rank}]}

    def page(self, **values: float) -> None:
        modes = {"decode": "decode", "prefill": "prefill_compute", "cached": "prefill_cache"}
        self.answers["/metrics"] = "".join(
            f'sglang:realtime_tokens_total{{mode="{modes[name]}",tp_rank="0"}} {value}\n'
            if name in modes
            else f'sglang:{name}{{tp_rank="0"}} {value}\n'
            for name, value in values.items()
        )


@pytest.fixture
async def engine() -> AsyncIterator[Engine]:
    scripted = Engine()
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", scripted.answer)
    server = TestServer(app)
    await server.start_server()
    scripted.url = str(server.make_url("/"))
    yield scripted
    await server.close()


@pytest.fixture
async def probing(engine: Engine) -> AsyncIterator[Probing]:
    async with aiohttp.ClientSession() as session:
        yield lambda **options: EngineProbe(session, options.pop("url", engine.url), key="0", **options)


async def test_load_and_metrics_become_one_sample(engine: Engine, probing: Probing) -> None:
    engine.loads(
        num_running_reqs=30,
        num_waiting_reqs=4,
        token_usage=0.5,
        max_total_num_tokens=1000,
        max_running_requests=64,
        total_prefill_uncached_tokens=70,
        decode_moments=[1, 2, 3, 4, 5, 900],
    )
    engine.page(decode=1000, prefill=100, cached=100, num_retracted_requests_total=3, gen_throughput=410)
    probe = probing()
    first = await probe.probe(1000.5)
    assert (first.decode_tokens_per_s, first.prefill_tokens_per_s, first.cache_hit_rate) == (None, None, None)
    engine.page(decode=3000, prefill=400, cached=200, num_retracted_requests_total=8, gen_throughput=420)
    assert await probe.probe(1005.5) == EngineSample(
        key="0",
        at=1005.5,
        answered=1.0,
        running=30.0,
        queued=4.0,
        prefill_tokens_per_s=60.0,
        decode_tokens_per_s=400.0,
        gen_throughput=420.0,
        token_usage=0.5,
        kv_capacity_tokens=1000.0,
        max_running_requests=64.0,
        cache_hit_rate=0.25,
        retracted_total=8.0,
        retracted_per_s=1.0,
        generated_tokens=900.0,
        prefilled_tokens=70.0,
        heartbeat_age_s=5.5,
    )
    assert (probe.failure, probe.version) == (None, "0.5.23")


async def test_metrics_are_asked_for_every_five_seconds_and_hold_in_between(engine: Engine, probing: Probing) -> None:
    engine.loads()
    engine.page(decode=0)
    probe = probing()
    rates = []
    for second in range(11):
        engine.page(decode=100 * second)
        rates.append((await probe.probe(float(second))).decode_tokens_per_s)
    assert engine.asked.count("/metrics") == 3
    assert engine.asked.count("/v1/loads") == 11
    assert rates == [None] * 5 + [100.0] * 6


async def test_rates_do_not_outlive_the_metrics_they_came_from(engine: Engine, probing: Probing) -> None:
    engine.loads(num_running_reqs=3)
    engine.page(decode=0)
    probe = probing()
    await probe.probe(0.0)
    engine.page(decode=500)
    assert (await probe.probe(5.0)).decode_tokens_per_s == 100.0
    engine.answers["/metrics"] = 500
    held, gone = await probe.probe(20.0), await probe.probe(20.5)
    assert (held.decode_tokens_per_s, gone.decode_tokens_per_s) == (100.0, None)
    assert (gone.answered, gone.running) == (1.0, 3.0)
    assert probe.failure == f"{engine.url}metrics answered HTTP 500."


async def test_a_restart_gives_no_rate_once_and_no_negative_one_ever(engine: Engine, probing: Probing) -> None:
    engine.loads()
    engine.page(decode=9000)
    probe = probing()
    probe.begin_life("first")
    await probe.probe(0.0)
    probe.begin_life("second")
    engine.page(decode=10_000)
    assert (await probe.probe(5.0)).decode_tokens_per_s is None
    engine.page(decode=10_500)
    assert (await probe.probe(10.0)).decode_tokens_per_s == 100.0


async def test_a_server_without_metrics_is_asked_once_and_its_load_tells_the_rates(engine: Engine, probing: Probing) -> None:
    probe = probing()
    engine.loads(decode_moments=[0, 0, 0, 0, 0, 100], total_prefill_uncached_tokens=10)
    await probe.probe(0.0)
    engine.loads(decode_moments=[0, 0, 0, 0, 0, 600], total_prefill_uncached_tokens=60)
    sample = await probe.probe(5.0)
    assert (sample.decode_tokens_per_s, sample.prefill_tokens_per_s) == (100.0, 10.0)
    assert (sample.gen_throughput, sample.retracted_total, sample.cache_hit_rate) == (None, None, None)
    assert engine.asked.count("/metrics") == 1
    probe.begin_life("another")
    await probe.probe(6.0)
    assert engine.asked.count("/metrics") == 2


async def test_an_older_server_tells_what_it_can_and_the_rest_is_none(engine: Engine, probing: Probing) -> None:
    engine.answers["/get_server_info"] = {"version": "0.4.9", "max_total_num_tokens": 20480, "max_running_requests": 48}
    engine.answers["/get_load"] = [{"dp_rank": 0, "num_reqs": 12, "num_waiting_reqs": 2}]
    engine.page(token_usage=0.5, gen_throughput=300)
    probe = probing()
    sample = await probe.probe(0.0)
    assert sample == EngineSample(
        key="0",
        at=0.0,
        answered=1.0,
        running=10.0,
        queued=2.0,
        gen_throughput=300.0,
        token_usage=0.5,
        kv_capacity_tokens=20480.0,
        max_running_requests=48.0,
    )
    assert probe.version == "0.4.9"
    for tenth in range(1, 100):
        await probe.probe(tenth / 10)
    assert {path: engine.asked.count(path) for path in set(engine.asked)} == {
        "/v1/loads": 1,
        "/server_info": 1,
        "/get_server_info": 1,
        "/get_load": 2,
        "/metrics": 2,
    }


async def test_a_server_that_has_only_metrics_is_read_from_them(engine: Engine, probing: Probing) -> None:
    engine.answers["/server_info"] = {"version": "0.5.1"}
    engine.page(num_running_reqs=7, num_queue_reqs=1, decode=50)
    sample = await probing().probe(0.0)
    assert (sample.running, sample.queued, sample.generated_tokens, sample.heartbeat_age_s) == (7.0, 1.0, 50.0, None)


async def test_a_stranger_on_the_port_is_no_engine(engine: Engine, probing: Probing) -> None:
    probe = probing()
    sample = await probe.probe(0.0)
    assert sample == EngineSample(key="0", at=0.0, answered=0.0)
    assert probe.failure == f"{engine.url[:-1]} has neither /server_info nor /get_server_info: is it an SGLang server?"


async def test_a_dead_port_is_a_sentence_and_what_was_learnt_is_learnt_anew(engine: Engine, probing: Probing) -> None:
    port = unused_port()
    probe = probing(url=f"http://127.0.0.1:{port}")
    assert (await probe.probe(0.0)).answered == 0.0
    assert probe.failure is not None
    assert probe.failure.startswith(f"http://127.0.0.1:{port}/v1/loads cannot be reached: ")


async def test_after_a_silence_a_missing_endpoint_is_looked_for_again(engine: Engine, probing: Probing) -> None:
    engine.answers["/server_info"] = {"version": "0.4.9"}
    probe = probing()
    assert (await probe.probe(0.0)).heartbeat_age_s is None
    engine.answers["/server_info"] = 500
    engine.answers["/get_load"] = 500
    assert (await probe.probe(5.0)).answered == 0.0
    engine.loads()
    assert (await probe.probe(1001.0)).heartbeat_age_s == 1.0


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (401, "v1/loads answered HTTP 401: it wants another API key."),
        (503, "v1/loads answered HTTP 503."),
        ({"error": "no"}, "/v1/loads answered no list of loads but {'error': 'no'}."),
        ("<html>", "unexpected character"),
    ],
)
async def test_a_wrong_answer_is_told_in_a_sentence(engine: Engine, probing: Probing, answer: Any, words: str) -> None:
    engine.answers["/v1/loads"] = answer
    probe = probing()
    assert (await probe.probe(0.0)).answered == 0.0
    assert probe.failure is not None
    assert words in probe.failure


async def test_the_key_is_sent_and_a_probe_of_a_hung_server_ends(engine: Engine, probing: Probing) -> None:
    released = asyncio.Event()

    async def hang() -> int:
        await released.wait()
        return 200

    engine.answers["/v1/loads"] = hang
    probe = probing(api_key="k-1", timeout_s=0.2)
    begin = time.monotonic()
    sample = await probe.probe(0.0)
    assert time.monotonic() - begin < 5
    released.set()
    assert sample.answered == 0.0
    assert probe.failure == f"{engine.url}v1/loads did not answer within 0.2 s."
    assert engine.headers["Authorization"] == "Bearer k-1"


async def test_server_info_is_read_on_request(engine: Engine, probing: Probing) -> None:
    probe = probing()
    with pytest.raises(EngineSilentError, match="is it an SGLang server"):
        await probe.read_server_info()
    engine.answers["/server_info"] = {"version": "0.5.23", "max_running_requests": 64}
    assert await probe.read_server_info() == ServerInfo(version="0.5.23", max_running_requests=64.0)
    assert probe.version == "0.5.23"
