"""The simulator under the same supervision as SGLang."""

from __future__ import annotations

import asyncio
import time

import aiohttp
from stand_in_run import MakeConfig, Until, one_replica

from backend.job.engine import ReplicaPhase
from backend.job.identity import owned_processes
from backend.job.process_tree import is_alive
from backend.job.server_record import load_record
from backend.run_dir import RunDir


async def test_a_simulated_server_is_proven_used_and_ended(
    run: RunDir, make_config: MakeConfig, until: Until, session: aiohttp.ClientSession
) -> None:
    replica = one_replica(make_config("--instant", kind="simulated", command=None), run)
    replica.launch(time.time())
    seen = await until(replica, ReplicaPhase.READY)
    assert seen.endpoint is not None
    record = load_record(run.servers, "0")
    assert record is not None
    assert record.api_key == seen.endpoint.api_key  # it takes the key and refuses others
    processes = owned_processes(record)
    headers = {"Authorization": f"Bearer {seen.endpoint.api_key}"}
    body = {"model": "sim", "messages": [{"role": "user", "content": "Hello"}], "max_tokens": 8}
    async with session.post(f"{seen.endpoint.base_url}/v1/chat/completions", json=body, headers=headers) as answer:
        assert answer.status == 200
    deadline = time.monotonic() + 20
    while seen.version is None:
        assert time.monotonic() < deadline
        seen = await replica.observe(session, time.time())
        await asyncio.sleep(0.02)
    assert seen.version.startswith("0.5.")
    report = await replica.stop(deadline_s=10)
    assert report.clean, report
    assert not any(is_alive(mark) for mark in processes)
