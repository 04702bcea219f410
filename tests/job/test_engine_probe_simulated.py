"""The probe and the simulator agree about an engine, new and old; the GPUs of a simulated box are read as NVML's."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from backend.job.engine_probe import EngineProbe
from backend.job.gpu import GpuReader
from backend.job.sglang_version import Support, supported_version
from backend.simulator import fake_nvml, gpu_state
from backend.simulator.lengths import LengthRule
from backend.simulator.server import SimulatedServer
from backend.simulator.settings import Profile, Settings


def settings(**fields: Any) -> Settings:
    rules = (LengthRule(mean=200, log_sd=0.5),)
    return Settings(port=0, speed=100.0, enable_metrics=True, health_delay_s=0.0, rules=rules, **fields)


async def generate(session: aiohttp.ClientSession, url: str, tokens: int) -> int:
    body = {
        "model": "simulated",
        "messages": [{"role": "user", "content": "Count."}],
        "max_tokens": tokens,
    }
    async with session.post(f"{url}/v1/chat/completions", json=body) as response:
        answer = await response.json()
    assert response.status == 200, answer
    return int(answer["usage"]["completion_tokens"])


async def test_tokens_generated_are_the_rate_times_the_time() -> None:
    async with SimulatedServer(settings()) as server, aiohttp.ClientSession() as session:
        probe = EngineProbe(session, server.url, key="0")
        await generate(session, server.url, 10)
        before = await probe.probe(1000.0)
        made = await generate(session, server.url, 1000)
        after = await probe.probe(1005.0)
        # The snapshot behind /v1/loads is published each so many steps and when idle.
        later, deadline = after, time.monotonic() + 20
        while later.generated_tokens == before.generated_tokens and time.monotonic() < deadline:
            later = await probe.probe(1006.0)
            await asyncio.sleep(0.05)
    # The first token of an answer comes from its prefill, which no decode counter counts.
    assert made > 100
    assert after.decode_tokens_per_s is not None
    assert made - 1 <= round(after.decode_tokens_per_s * 5) <= made
    assert (after.prefill_tokens_per_s or 0) > 0
    assert later.generated_tokens is not None
    assert before.generated_tokens is not None
    assert later.generated_tokens > before.generated_tokens
    assert (after.running, after.queued, after.retracted_total) == (0.0, 0.0, 0.0)
    assert after.heartbeat_age_s is not None
    assert probe.version is not None
    assert supported_version(probe.version).support is Support.FULL


async def test_an_older_engine_leaves_gaps_and_no_wrong_figures() -> None:
    async with SimulatedServer(settings(profile=Profile.OLD)) as server, aiohttp.ClientSession() as session:
        probe = EngineProbe(session, server.url, key="0")
        await probe.probe(1000.0)
        await generate(session, server.url, 500)
        sample = await probe.probe(1005.0)
    assert probe.failure is None
    assert (sample.answered, sample.running, sample.queued) == (1.0, 0.0, 0.0)
    assert sample.max_running_requests is not None
    assert sample.kv_capacity_tokens is not None
    assert (sample.decode_tokens_per_s, sample.generated_tokens, sample.heartbeat_age_s) == (None, None, None)
    assert supported_version(probe.version).support is Support.GAPS


def test_the_gpus_of_simulated_servers_are_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "gpus"
    folder.mkdir()
    monkeypatch.setenv("HEADWAY_NVML_LIBRARY", str(fake_nvml.build(tmp_path / "library")))
    monkeypatch.setenv("FAKE_NVML_DIR", str(folder))
    monkeypatch.delenv("FAKE_NVML_FILE", raising=False)
    (folder / "box").write_text("count 3\n")
    gpu_state.write_once(folder / "replica-0", (0, 1), busy=0.8, power_w=500.0, energy_mj=4000.0)
    gpu_state.write_once(folder / "replica-1", (2,), busy=0.0, power_w=90.0, energy_mj=0.0)
    reader = GpuReader()
    reader.open()
    first, second, third = reader.read(time.time())
    reader.close()
    assert (first.utilization_percent, second.power_w, third.utilization_percent) == (80, 500.0, 0)
    assert (first.energy_j, third.energy_j) == (4.0, 0.0)
