"""A server that somebody else runs."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import aiohttp
import pytest
from stand_in_run import STAND_IN, MakeConfig, Until, one_replica

from backend.job.engine import AbortFailed, AdoptOutcome, ReplicaPhase, StartRefused
from backend.job.ports import free_port
from backend.run_dir import RunDir


class TheirServer:
    """A stand-in server that the test runs."""

    def __init__(self, folder: Path) -> None:
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self.aborts = folder / "aborts"
        self.busy = folder / "busy"
        self._key = folder / "key.yaml"
        self._key.write_text('api-key: "their-key"\n')
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        files = ["--config", str(self._key), "--play-record-aborts", str(self.aborts), "--play-busy-file", str(self.busy)]
        self.process = subprocess.Popen([sys.executable, "-S", str(STAND_IN), "--port", str(self.port), *files])

    def end(self) -> None:
        if self.process is not None:
            self.process.kill()
            self.process.wait()


@pytest.fixture
def theirs(tmp_path: Path) -> Iterator[TheirServer]:
    server = TheirServer(tmp_path)
    yield server
    server.end()


ENVIRON = {"THEIR_KEY": "their-key"}


async def test_a_server_of_others_is_used_and_never_stopped(
    run: RunDir, make_config: MakeConfig, theirs: TheirServer, until: Until, session: aiohttp.ClientSession
) -> None:
    config = make_config(kind="attached", command=None, urls=[f"{theirs.url}/v1/"], api_key_env="THEIR_KEY")
    replica = one_replica(config, run, ENVIRON)
    assert replica.adopt().outcome is AdoptOutcome.NOTHING
    replica.launch(time.time())
    absent = await until(replica, ReplicaPhase.ABSENT)
    assert f"nothing answers at {theirs.url}" in (absent.reason or "")
    theirs.start()
    seen = await until(replica, ReplicaPhase.READY)
    assert seen.endpoint is not None
    assert seen.endpoint.base_url == theirs.url
    assert seen.endpoint.api_key == "their-key"
    assert not seen.endpoint.owned
    with pytest.raises(AbortFailed, match="run by somebody else"):
        await replica.abort(session, None)
    await replica.abort(session, ["r" * 32])
    assert [json.loads(line) for line in theirs.aborts.read_text().splitlines()] == [{"rid": "r" * 32, "abort_all": False}]
    report = await replica.stop(deadline_s=1)
    assert report.clean
    assert "goes on" in report.message
    assert theirs.process is not None
    assert theirs.process.poll() is None


async def test_a_busy_server_of_others_stays_ready_and_another_life_is_a_new_launch(
    run: RunDir, make_config: MakeConfig, theirs: TheirServer, until: Until, session: aiohttp.ClientSession
) -> None:
    config = make_config(kind="attached", command=None, urls=[theirs.url], api_key_env="THEIR_KEY")
    replica = one_replica(config, run, ENVIRON)
    theirs.start()
    first = await until(replica, ReplicaPhase.READY)
    assert first.endpoint is not None
    theirs.busy.touch()
    now = time.time()
    for second in range(5, 60, 5):
        seen = await replica.observe(session, now + second)
        assert seen.endpoint == first.endpoint
    theirs.busy.unlink()
    theirs.end()
    deadline = time.monotonic() + 20
    while seen.phase is not ReplicaPhase.ABSENT:
        assert time.monotonic() < deadline
        now += 60
        seen = await replica.observe(session, now)
        await asyncio.sleep(0.02)
    theirs.start()
    again = await until(replica, ReplicaPhase.READY)
    assert again.endpoint is not None
    assert again.endpoint.launch != first.endpoint.launch


def test_a_missing_key_variable_refuses_the_start(run: RunDir, make_config: MakeConfig) -> None:
    config = make_config(kind="attached", command=None, urls=["http://127.0.0.1:1"], api_key_env="THEIR_KEY")
    with pytest.raises(StartRefused, match="THEIR_KEY, which is not set"):
        one_replica(config, run, {}).launch(time.time())
