"""A server in a container, by a stand-in for the docker executable."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from stand_in_run import STAND_IN, MakeConfig, Until, one_replica

from backend.config import RunConfig
from backend.job.engine import AdoptOutcome, Replica, ReplicaPhase, StartRefused
from backend.job.ports import is_free
from backend.job.server_record import load_record, save_record
from backend.run_dir import RunDir

DOCKER = Path(__file__).with_name("stand_in_docker.py")

MakeContainer = Callable[..., RunConfig]


@pytest.fixture
def docker_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    home = tmp_path / "docker"
    home.mkdir()
    monkeypatch.setenv("STAND_IN_DOCKER", str(home))
    yield home
    for file in home.glob("*.json"):
        with contextlib.suppress(ProcessLookupError):
            os.kill(json.loads(file.read_text())["pid"], signal.SIGKILL)


@pytest.fixture
def make_container(make_config: MakeConfig, docker_home: Path) -> MakeContainer:
    executable = docker_home / "docker"
    executable.write_text(f'#!/bin/sh\nexec {sys.executable} -S {DOCKER} "$@"\n')
    executable.chmod(0o755)

    def make(*flags: str, **engine: Any) -> RunConfig:
        command = [sys.executable, "-S", str(STAND_IN)]
        fields = {"kind": "container", "docker": str(executable), "image": "sglang:test", "command": command} | engine
        return make_config("--device", "cpu", *flags, **fields)

    return make


def asked(home: Path, verb: str) -> list[list[str]]:
    calls = [json.loads(line) for line in (home / "asked").read_text().splitlines()]
    return [call for call in calls if call[0] == verb]


def abandon(replica: Replica) -> None:
    """What SIGKILL does to a supervisor, as far as its children are concerned: it no longer waits for them."""
    follower = replica._follower  # type: ignore[attr-defined]
    follower.returncode = 0


async def test_a_container_is_started_watched_and_removed(
    run: RunDir, make_container: MakeContainer, docker_home: Path, until: Until, session: aiohttp.ClientSession
) -> None:
    replica = one_replica(make_container("--play-say", "hello from inside", env={"A_SETTING": "1"}), run)
    assert replica.adopt().outcome is AdoptOutcome.NOTHING
    replica.launch(time.time())
    seen = await until(replica, ReplicaPhase.READY)
    assert seen.endpoint is not None
    assert seen.endpoint.api_key
    port = int(seen.endpoint.base_url.rpartition(":")[2])
    [call] = asked(docker_home, "run")
    name = call[call.index("--name") + 1]
    assert name == f"headway-run-0-{seen.endpoint.launch}"
    assert call[call.index("-p") + 1] == f"127.0.0.1:{port}:{port}"
    assert seen.endpoint.api_key not in " ".join(call)
    assert "A_SETTING=1" not in " ".join(call)
    assert not (run.servers / "0.env").exists()
    while "hello from inside" not in run.server_log("0").read_text():
        await asyncio.sleep(0.02)
    report = await replica.stop(deadline_s=5)
    assert report.clean, report
    assert is_free(port)
    assert list(docker_home.glob("*.json")) == []
    assert list(run.servers.iterdir()) == []
    assert (await replica.observe(session, time.time())).phase is ReplicaPhase.ABSENT


async def test_a_container_outlives_its_supervisor_and_is_kept(
    run: RunDir, make_container: MakeContainer, until: Until, session: aiohttp.ClientSession
) -> None:
    config = make_container()
    former = one_replica(config, run)
    former.launch(time.time())
    before = await until(former, ReplicaPhase.READY)
    abandon(former)
    replica = one_replica(config, run)
    result = replica.adopt()
    assert result.outcome is AdoptOutcome.ADOPTED, result
    after = await replica.observe(session, time.time())
    assert after.phase is ReplicaPhase.READY
    assert after.endpoint == before.endpoint
    assert after.pid == before.pid
    assert (await replica.stop(deadline_s=5)).clean


async def test_a_container_without_its_record_is_removed(
    run: RunDir, make_container: MakeContainer, docker_home: Path, until: Until
) -> None:
    config = make_container()
    former = one_replica(config, run)
    former.launch(time.time())
    await until(former, ReplicaPhase.READY)
    (run.servers / "0.json").unlink()
    assert one_replica(config, run).adopt().outcome is AdoptOutcome.REAPED
    assert list(docker_home.glob("*.json")) == []
    await former.stop(deadline_s=1)


async def test_a_container_that_does_not_know_its_key_is_removed(
    run: RunDir, make_container: MakeContainer, until: Until
) -> None:
    config = make_container()
    former = one_replica(config, run)
    former.launch(time.time())
    await until(former, ReplicaPhase.READY)
    record = load_record(run.servers, "0")
    assert record is not None
    save_record(run.servers, replace(record, api_key="headway-another"))
    result = one_replica(config, run).adopt()
    assert result.outcome is AdoptOutcome.REAPED
    assert "does not know the API key" in (result.reason or "")
    await former.stop(deadline_s=1)


async def test_a_container_that_ignores_sigterm_is_killed(run: RunDir, make_container: MakeContainer, until: Until) -> None:
    replica = one_replica(make_container("--play-ignore-sigterm"), run)
    replica.launch(time.time())
    await until(replica, ReplicaPhase.READY)
    report = await replica.stop(deadline_s=1)
    assert report.clean, report
    assert report.killed == 1
    assert report.exit_code == 137
    assert "was killed after 1 s" in report.message


async def test_the_end_of_a_container_is_told_with_its_exit_code(
    run: RunDir, make_container: MakeContainer, docker_home: Path, until: Until
) -> None:
    replica = one_replica(make_container("--play-say", "RuntimeError: NCCL error: remote peer"), run)
    replica.launch(time.time())
    seen = await until(replica, ReplicaPhase.READY)
    assert seen.pid is not None
    (docker_home / "oom").touch()
    os.kill(seen.pid, signal.SIGKILL)
    dead = await observe_later(replica, ReplicaPhase.EXITED)
    assert dead.exit_code == 137
    assert "exceeded its memory limit" in (dead.reason or "")
    await replica.stop(deadline_s=1)


async def test_a_container_that_somebody_removed_has_ended(
    run: RunDir, make_container: MakeContainer, docker_home: Path, until: Until
) -> None:
    replica = one_replica(make_container(), run)
    replica.launch(time.time())
    await until(replica, ReplicaPhase.READY)
    [state] = docker_home.glob("*.json")
    subprocess.run([docker_home / "docker", "rm", "-f", state.stem], check=True)
    dead = await observe_later(replica, ReplicaPhase.EXITED)
    assert dead.pid is None
    assert dead.exit_code is None
    assert (await replica.stop(deadline_s=1)).clean


async def observe_later(replica: Replica, phase: ReplicaPhase) -> Any:
    """Observes with a clock that runs ahead, so that the next look at Docker is due each time."""
    now, deadline = time.time(), time.monotonic() + 30
    async with aiohttp.ClientSession() as session:
        while True:
            now += 3
            seen = await replica.observe(session, now)
            if seen.phase is phase:
                return seen
            assert time.monotonic() < deadline, seen


async def test_a_start_refused_by_docker_is_told_with_a_remedy(
    run: RunDir, make_container: MakeContainer, until: Until
) -> None:
    replica = one_replica(make_container(image="missing:latest"), run)
    replica.launch(time.time())
    failed = await until(replica, ReplicaPhase.START_FAILED)
    assert "There is no such image here" in (failed.reason or "")
    assert "Correct engine.image" in (failed.reason or "")
    await replica.stop(deadline_s=1)


async def test_a_docker_engine_that_does_not_answer_says_nothing_about_the_container(
    run: RunDir, make_container: MakeContainer, docker_home: Path, until: Until, session: aiohttp.ClientSession
) -> None:
    config = make_container()
    replica = one_replica(config, run)
    replica.launch(time.time())
    await until(replica, ReplicaPhase.READY)
    (docker_home / "down").touch()
    now = time.time()
    for second in range(3, 12, 3):
        assert (await replica.observe(session, now + second)).phase is ReplicaPhase.READY
    result = one_replica(config, run).adopt()
    assert result.outcome is AdoptOutcome.FOREIGN
    assert "The Docker engine does not run" in (result.reason or "")
    report = await replica.stop(deadline_s=0.2)
    assert not report.clean
    assert "The Docker engine does not run" in report.message
    (docker_home / "down").unlink()
    assert (await replica.stop(deadline_s=5)).clean


def test_a_missing_docker_executable_refuses_the_start(run: RunDir, make_container: MakeContainer) -> None:
    replica = one_replica(make_container(docker="/nowhere/docker"), run)
    with pytest.raises(StartRefused, match=r"/nowhere/docker cannot be run: No such file"):
        replica.launch(time.time())
