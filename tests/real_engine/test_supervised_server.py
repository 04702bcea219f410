"""The real SGLang as a server of ours: proven, taken over, killed, ended; and its own words when it does not start."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from backend.config import RunConfig
from backend.engine_cpu.place import EnginePlace, engine_settings
from backend.job.engine import AdoptOutcome, Replica, ReplicaObservation, ReplicaPhase, build_replicas
from backend.job.identity import owned_processes
from backend.job.preflight import check
from backend.job.process_tree import command_line, is_alive
from backend.job.server_record import load_record
from backend.run_dir import RunDir

pytestmark = [pytest.mark.real_engine, pytest.mark.timeout(400)]

ROOT = Path(__file__).parents[2]


@pytest.fixture
def run(tmp_path: Path, engine_place: EnginePlace) -> RunDir:
    made = RunDir(tmp_path / "run")
    made.create_folders()
    return made


def make_config(*args: str, model: str | None = None) -> RunConfig:
    settings: dict[str, Any] = engine_settings(ROOT)
    settings["engine"]["args"] += args
    if model is not None:
        settings["model"]["path"] = model
    return RunConfig.model_validate({"name": "test", "datasets": [{"name": "A", "path": "a.jsonl"}], **settings})


async def until(replica: Replica, session: aiohttp.ClientSession, phase: ReplicaPhase, timeout_s: float) -> ReplicaObservation:
    deadline = time.monotonic() + timeout_s
    while True:
        seen = await replica.observe(session, time.time())
        if seen.phase is phase:
            return seen
        assert seen.phase is ReplicaPhase.LOADING, seen
        assert time.monotonic() < deadline, seen
        await asyncio.sleep(0.2)


async def test_the_real_server_is_proven_taken_over_and_its_crash_is_told(run: RunDir) -> None:
    config = make_config()
    assert [finding for finding in check(config, run, dict(os.environ)) if finding.severity == "error"] == []
    replica = build_replicas(config, run, dict(os.environ))[0]
    replica.launch(time.time())
    async with aiohttp.ClientSession() as session:
        ready = await until(replica, session, ReplicaPhase.READY, 240)
        record = load_record(run.servers, "0")
        assert record is not None
        assert record.main is not None
        assert record.api_key is not None  # SGLang takes the key of the file and refuses another
        processes = owned_processes(record)
        names = {command_line(mark.pid).split()[0] for mark in processes}
        assert "sglang::scheduler" in names
        assert all(record.api_key not in command_line(mark.pid) for mark in processes)
        other = build_replicas(config, run, dict(os.environ))[0]
        assert other.adopt().outcome is AdoptOutcome.ADOPTED
        taken = await other.observe(session, time.time())
        assert taken.endpoint == ready.endpoint
        assert taken.pid == record.main.pid
        scheduler = next(mark for mark in processes if command_line(mark.pid).startswith("sglang::scheduler"))
        os.kill(scheduler.pid, signal.SIGKILL)
        deadline = time.monotonic() + 60
        while (dead := await replica.observe(session, time.time())).phase is ReplicaPhase.READY:
            assert time.monotonic() < deadline
            await asyncio.sleep(0.2)
        assert dead.phase is ReplicaPhase.EXITED
        assert dead.exit_code == -9
        assert dead.version in (None, "0.5.23")
        assert "it was killed (exit code -9)" in (dead.reason or "")
        report = await replica.stop(deadline_s=20)
        assert report.clean, report
        assert not any(is_alive(mark) for mark in processes)


@pytest.mark.parametrize(
    ("args", "model", "words"),
    [
        (["--mem-fraktion", "1"], None, "this SGLang does not know: --mem-fraktion 1"),
        ([], "/nowhere/model", "there is no such model: /nowhere/model"),
    ],
    ids=["unknown argument", "no such model"],
)
async def test_a_start_that_fails_is_told_in_words(run: RunDir, args: list[str], model: str | None, words: str) -> None:
    replica = build_replicas(make_config(*args, model=model), run, dict(os.environ))[0]
    replica.launch(time.time())
    async with aiohttp.ClientSession() as session:
        failed = await until(replica, session, ReplicaPhase.START_FAILED, 120)
        assert words in (failed.reason or ""), run.server_log("0").read_text()[-3000:]
        assert (await replica.stop(deadline_s=5)).clean
