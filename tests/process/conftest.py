"""A run with a stand-in server, and what every test of processes needs: nothing may be left behind."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest
import pytest_asyncio
from stand_in_run import STAND_IN, MakeConfig, Until

from backend.config import RunConfig
from backend.job.engine import Replica, ReplicaObservation, ReplicaPhase
from backend.job.process_tree import all_processes, read_environ
from backend.run_dir import RunDir


@pytest.fixture
def run(tmp_path: Path) -> Iterator[RunDir]:
    made = RunDir(tmp_path / "run")
    made.create_folders()
    yield made
    for pid, stat in all_processes().items():
        if stat.alive and (read_environ(pid) or {}).get("HEADWAY_RUN") == str(made.root):
            os.kill(pid, signal.SIGKILL)


@pytest.fixture
def make_config() -> MakeConfig:
    """A configuration whose engine is the stand-in server with these flags."""

    def make(*flags: str, **engine: Any) -> RunConfig:
        fields = {"kind": "local", "command": [sys.executable, "-S", str(STAND_IN)], "args": list(flags)} | engine
        return RunConfig.model_validate(
            {
                "name": "test",
                "model": {"path": "stand-in/model"},
                "engine": fields,
                "datasets": [{"name": "A", "path": "a.jsonl"}],
            }
        )

    return make


@pytest_asyncio.fixture
async def session() -> AsyncIterator[aiohttp.ClientSession]:
    async with aiohttp.ClientSession() as made:
        yield made


@pytest.fixture
def until(session: aiohttp.ClientSession) -> Until:
    """Observes until the phase is seen."""

    async def wait(replica: Replica, phase: ReplicaPhase, timeout_s: float = 30.0) -> ReplicaObservation:
        deadline = time.monotonic() + timeout_s
        while True:
            seen = await replica.observe(session, time.time())
            if seen.phase is phase:
                return seen
            assert time.monotonic() < deadline, f"still {seen}"
            await asyncio.sleep(0.02)

    return wait
