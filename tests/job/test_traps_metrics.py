"""The traps of SGLang's figures: what looks like a live number and is none, and what is one."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator

import aiohttp
import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from backend.job.engine_loads import read_loads
from backend.job.engine_metrics import read_metrics
from backend.job.engine_probe import METRICS_ACCEPT, EngineProbe, EngineSilentError


class Server:
    """An SGLang whose figures a test sets; `hung` stops its scheduler, not its HTTP side."""

    def __init__(self) -> None:
        self.page = ""
        self.accept = ""
        self.load: dict[str, object] = {}
        self.beat_at = 0.0
        self.clock = 0.0
        self.hung = asyncio.Event()
        self.url = ""

    async def metrics(self, request: web.Request) -> web.Response:
        self.accept = request.headers["Accept"]
        return web.Response(text=self.page)

    async def loads(self, _: web.Request) -> web.Response:
        # The answer's own time is fresh however long the scheduler has been silent.
        return web.json_response({"timestamp": self.clock, "loads": [{"timestamp": self.beat_at, **self.load}]})

    async def info(self, _: web.Request) -> web.Response:
        await self.hung.wait()
        return web.json_response({"version": "0.5.23"})


@pytest.fixture
async def server() -> AsyncIterator[Server]:
    scripted = Server()
    app = web.Application()
    app.router.add_get("/metrics", scripted.metrics)
    app.router.add_get("/v1/loads", scripted.loads)
    app.router.add_get("/server_info", scripted.info)
    app.router.add_get("/get_server_info", scripted.info)
    running = TestServer(app)
    await running.start_server()
    scripted.url = str(running.make_url("/"))
    yield scripted
    scripted.hung.set()
    await running.close()


@pytest.fixture
async def probe(server: Server) -> AsyncIterator[EngineProbe]:
    async with aiohttp.ClientSession() as session:
        yield EngineProbe(session, server.url, key="0", timeout_s=0.3)


def page(*, live: int, finished: int, gauge: float = 0.0) -> str:
    return (
        f'sglang:realtime_tokens_total{{mode="decode",tp_rank="0"}} {live}\n'
        f'sglang:realtime_tokens_total{{mode="prefill_compute",tp_rank="0"}} 100\n'
        f'sglang:generation_tokens_total{{is_streaming="false"}} {finished}\n'
        f'sglang:gen_throughput{{tp_rank="0"}} {gauge}\n'
    )


async def test_trap_01_the_rate_moves_while_nothing_finishes(server: Server, probe: EngineProbe) -> None:
    """`generation_tokens_total` is flat for as long as an answer takes and then jumps: it makes no rate."""
    rates = []
    for step, (live, finished) in enumerate([(0, 0), (1000, 0), (2000, 0), (3000, 3000)]):
        server.page = page(live=live, finished=finished)
        rates.append((await probe.probe(5.0 * step)).decode_tokens_per_s)
    assert rates == [None, 200.0, 200.0, 200.0]


async def test_trap_01_a_server_without_the_live_counter_has_no_rate(server: Server, probe: EngineProbe) -> None:
    for step, finished in enumerate((0, 0, 30_000)):
        server.page = f"sglang:generation_tokens_total {finished}\nsglang:gen_throughput 1500\n"
        sample = await probe.probe(5.0 * step)
        assert (sample.decode_tokens_per_s, sample.generated_tokens) == (None, None)
        assert sample.gen_throughput == 1500.0


async def test_trap_02_a_frozen_gauge_is_not_taken_for_work(server: Server, probe: EngineProbe) -> None:
    """A hung scheduler leaves every gauge as it was: the counter's rate is 0 and the heartbeat grows old."""
    server.page = page(live=5000, finished=0, gauge=1234.5)
    server.load = {"num_running_reqs": 30, "decode_moments": [0, 0, 0, 0, 0, 5000]}
    samples = []
    for step in range(3):
        server.clock = 5.0 * step
        samples.append(await probe.probe(5.0 * step))
    last = samples[-1]
    assert (last.gen_throughput, last.running) == (1234.5, 30.0)
    assert last.decode_tokens_per_s == 0.0
    assert last.heartbeat_age_s == 10.0
    assert {sample.generated_tokens for sample in samples} == {5000.0}


async def test_trap_04_server_info_of_a_hung_scheduler_does_not_hang_us(server: Server, probe: EngineProbe) -> None:
    begin = time.monotonic()
    with pytest.raises(EngineSilentError, match=r"/server_info did not answer within 0\.3 s"):
        await probe.read_server_info()
    assert time.monotonic() - begin < 10
    assert (await probe.probe(0.0)).answered == 1.0


def test_trap_05_the_heartbeat_is_the_ranks_time_not_the_answers() -> None:
    """An answer of this very moment from a scheduler that has been silent for 90 s."""
    answer = {"timestamp": "2026-11-30T13:30:00+00:00", "loads": [{"timestamp": 1_796_045_310.0, "num_running_reqs": 5}]}
    assert read_loads(answer, now=1_796_045_400.0).heartbeat_age_s == 90.0


async def test_trap_05_loads_need_no_metrics(server: Server, probe: EngineProbe) -> None:
    server.load = {"num_running_reqs": 5, "num_waiting_reqs": 2, "decode_moments": [0, 0, 0, 0, 0, 77]}
    server.beat_at, server.clock = 99.0, 100.0
    sample = await probe.probe(100.0)
    assert (sample.running, sample.queued, sample.generated_tokens, sample.heartbeat_age_s) == (5.0, 2.0, 77.0, 1.0)


@pytest.mark.parametrize("separator", [":", "_"])
def test_trap_06_either_spelling_of_names_is_read(separator: str) -> None:
    text = page(live=7, finished=3, gauge=2.5).replace("sglang:", f"sglang{separator}")
    metrics = read_metrics(text)
    assert (metrics.decode_tokens_total, metrics.generation_tokens_total, metrics.gen_throughput) == (7.0, 3.0, 2.5)


async def test_trap_06_the_classic_text_is_asked_for(server: Server, probe: EngineProbe) -> None:
    await probe.probe(0.0)
    assert server.accept == METRICS_ACCEPT == "text/plain;version=0.0.4"


async def test_trap_07_counters_that_did_not_reset_with_their_server_make_no_rate(server: Server, probe: EngineProbe) -> None:
    """An inherited multiprocess folder keeps the dead server's totals: the new life's first look is a beginning."""
    probe.begin_life("pid 10")
    server.page = page(live=80_000, finished=80_000)
    await probe.probe(0.0)
    probe.begin_life("pid 11")
    server.page = page(live=90_000, finished=90_000)
    assert (await probe.probe(5.0)).decode_tokens_per_s is None
    server.page = page(live=90_500, finished=90_000)
    assert (await probe.probe(10.0)).decode_tokens_per_s == 100.0


async def test_trap_07_counters_that_reset_unnoticed_make_no_negative_rate(server: Server, probe: EngineProbe) -> None:
    server.page = page(live=800, finished=800)
    await probe.probe(0.0)
    server.page = page(live=0, finished=0)
    assert (await probe.probe(5.0)).decode_tokens_per_s is None
    server.page = page(live=250, finished=0)
    assert (await probe.probe(10.0)).decode_tokens_per_s == 50.0
