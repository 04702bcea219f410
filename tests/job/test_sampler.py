"""Telemetry of a job: written each time, published, and never a reason to stop."""

from __future__ import annotations

import asyncio
import threading
import time
import urllib.request
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, closing, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from backend import telemetry_store
from backend.job.gpu import GpuReader, GpuUnavailable
from backend.job.in_flight import InFlightJournal
from backend.job.ledger import Ledger
from backend.job.sampler import Sampler
from backend.job.slots import Slots
from backend.job.state_store import StateStore
from backend.records import EngineState, Event
from backend.run_dir import RunDir, open_state
from backend.telemetry import EngineSample
from tests.job.made_job import make_config, make_run_dir, make_runners
from tests.sample_rows import make_row


@dataclass
class FakeKeeper:
    """A replica that has been asked."""

    name: str = "0"
    state: EngineState = EngineState.READY
    sample: EngineSample | None = None


@dataclass
class Bench:
    """A sampler at work."""

    run: RunDir
    sampler: Sampler
    keeper: FakeKeeper
    slots: Slots
    events: list[Event]

    def rows(self, table: str) -> list[dict[str, Any]]:
        with closing(open_state(self.run, read_only=True)) as con:
            return [dict(row) for row in con.execute(f"SELECT * FROM {table} WHERE resolution_s = 1 ORDER BY at")]


@asynccontextmanager
async def sampling(folder: Path, **settings: Any) -> AsyncIterator[Bench]:
    run = make_run_dir(folder)
    config = make_config(folder, {"A": ["a", "b"], "B": ["c"]}, **settings)
    ledger, store, events, keeper = Ledger.open(run), StateStore(run), [], FakeKeeper()
    journal = InFlightJournal(run.in_flight)
    async with aiohttp.ClientSession() as session:
        slots = Slots(
            driver=config.driver, runners=make_runners(config, ledger), ledger=ledger, journal=journal, session=session,
            model="m", now=time.time, concurrency=7, order=["A", "B"],
        )  # fmt: skip
        keepers: Any = [keeper]
        sampler = Sampler(run, config, slots=slots, keepers=keepers, store=store, emit=events.append)
        task = asyncio.create_task(sampler.run())
        try:
            yield Bench(run, sampler, keeper, slots, events)
        finally:
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task
            sampler.close()
            journal.close()
            await ledger.close()
            store.close()


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("backend.job.sampler.EVERY_S", 0.02)


async def until(condition: Callable[[], Any]) -> None:
    deadline = time.monotonic() + 10
    while True:
        with suppress(Exception):
            if condition():
                return
        assert time.monotonic() < deadline
        await asyncio.sleep(0.02)


async def test_driver_and_host_are_written_for_the_run_and_each_dataset(tmp_path: Path) -> None:
    async with sampling(tmp_path, telemetry={"gpu": False}) as bench:
        row = make_row(0, dataset="A", completion_tokens=40, prompt_tokens=3)
        bench.slots.ledger.append(row)
        await bench.slots.ledger.flush()
        await until(lambda: any(r["finished_total"] == 1 for r in bench.rows("driver_samples")))
        rows = {r["key"]: r for r in bench.rows("driver_samples")}
        assert set(rows) == {"run", "A", "B"}
        assert (rows["A"]["completion_tokens_total"], rows["A"]["mean_completion_tokens"]) == (40, 40)
        assert (rows["B"]["finished_total"], rows["B"]["mean_completion_tokens"]) == (0, None)
        assert (rows["run"]["concurrency"], rows["A"]["concurrency"]) == (7, None)
        assert bench.rows("host_samples")[-1]["memory_total_bytes"] > 0


async def test_an_engine_is_written_only_while_it_can_be_asked(tmp_path: Path) -> None:
    async with sampling(tmp_path, telemetry={"gpu": False}) as bench:
        await until(lambda: bench.rows("host_samples"))
        assert bench.rows("engine_samples") == []
        bench.keeper.sample = EngineSample(key="0", at=time.time(), running=3.0)
        await until(lambda: bench.rows("engine_samples"))
        (row,) = bench.rows("engine_samples")
        assert (row["running"], row["queued"]) == (3.0, None)


async def test_figures_are_offered_to_prometheus(tmp_path: Path) -> None:
    async with sampling(tmp_path, telemetry={"gpu": False, "prometheus_port": 0}) as bench:
        await until(lambda: bench.sampler.prometheus_url is not None)
        url = bench.sampler.prometheus_url
        assert url is not None

        def page() -> str:
            with urllib.request.urlopen(url, timeout=5) as response:
                text: str = response.read().decode()
            return text

        bench.keeper.sample = EngineSample(key="0", at=time.time(), running=3.0)
        deadline = time.monotonic() + 10
        while 'dataset="A"' not in (text := await asyncio.to_thread(page)):
            assert time.monotonic() < deadline, text
    with pytest.raises(OSError, match="refused"):
        await asyncio.to_thread(page)


async def test_a_port_that_is_taken_is_told_and_the_rest_goes_on(tmp_path: Path) -> None:
    server = await asyncio.start_server(lambda *_: None, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    async with sampling(tmp_path, telemetry={"gpu": False, "prometheus_port": port}) as bench:
        await until(lambda: bench.rows("host_samples"))
        assert bench.sampler.prometheus_url is None
        assert [event.kind for event in bench.events] == ["telemetry.not_offered"]
        assert str(port) in bench.events[0].message
    server.close()
    await server.wait_closed()


async def test_errors_while_sampling_are_told_once_and_sampling_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    written = telemetry_store.write
    failures = iter([ZeroDivisionError("of our own") for _ in range(3)])

    def fail_first(*arguments: Any) -> None:
        error = next(failures, None)
        if error is not None:
            raise error
        written(*arguments)

    monkeypatch.setattr(telemetry_store, "write", fail_first)
    async with sampling(tmp_path, telemetry={"gpu": False}) as bench:
        await until(lambda: bench.rows("host_samples"))
        await until(lambda: len(bench.events) == 2)
        assert [event.kind for event in bench.events] == ["telemetry.failed", "telemetry.failed.over"]
        assert "logs/supervisor.log" in bench.events[0].message


async def test_where_there_is_no_gpu_to_ask_it_is_said_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def nothing(_: GpuReader) -> None:
        raise GpuUnavailable("There is no NVIDIA driver here.")

    monkeypatch.setattr(GpuReader, "open", nothing)
    async with sampling(tmp_path) as bench:
        await until(lambda: len(bench.rows("host_samples")) >= 1)
        assert [(event.kind, event.message) for event in bench.events] == [
            ("gpu.unavailable", "GPUs are not measured: There is no NVIDIA driver here.")
        ]
        assert bench.rows("gpu_samples") == []


async def test_a_driver_that_hangs_stops_no_other_telemetry(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    released, opened = threading.Event(), []

    def hang(_: GpuReader) -> None:
        opened.append(time.monotonic())
        released.wait(20)

    monkeypatch.setattr(GpuReader, "open", hang)
    monkeypatch.setattr("backend.job.gpu_watch.TIMEOUT_S", 0.05)
    try:
        async with sampling(tmp_path) as bench:
            await until(lambda: len(bench.rows("host_samples")) >= 1 and bench.events)
            count = len(bench.rows("driver_samples"))
            await until(lambda: len(bench.rows("driver_samples")) > count)
            assert [event.kind for event in bench.events] == ["gpu.hung"]
            assert len(opened) == 1
    finally:
        released.set()
