"""The traps that a supervisor of SGLang processes falls into (the others are tested where engine metrics are read)."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import aiohttp
import pytest
from stand_in_run import MakeConfig, Until, one_replica

from backend.config.sglang_flags import flag_faults
from backend.job.engine import ReplicaPhase, StartRefused
from backend.job.ports import free_port
from backend.job.start_errors import exit_words
from backend.run_dir import RunDir


@contextmanager
def server_that_says_yes(port: int) -> Iterator[list[str]]:
    """Somebody else's server: answers 200 to everything. Gives the paths it was asked for."""
    asked: list[str] = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.append(self.path)
            self.send_response(200)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *args: object) -> None:
            return

    server = ThreadingHTTPServer(("127.0.0.1", port), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.02,))
    thread.start()
    try:
        yield asked
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@pytest.mark.parametrize("flags", [[], ["--play-no-ready-page"]], ids=["current", "older"])
async def test_trap_03_health_503_under_load_is_not_death(  # noqa: PLR0917 - fixtures
    run: RunDir, make_config: MakeConfig, until: Until, session: aiohttp.ClientSession, tmp_path: Path, flags: list[str]
) -> None:
    busy = tmp_path / "busy"
    replica = one_replica(make_config("--play-busy-file", str(busy), *flags), run)
    replica.launch(time.time())
    first = await until(replica, ReplicaPhase.READY)
    busy.touch()
    now = time.time()
    seen = [await replica.observe(session, now + second) for second in range(0, 60, 5)]
    assert {observation.phase for observation in seen} == {ReplicaPhase.READY}
    assert {observation.pid for observation in seen} == {first.pid}
    assert all(observation.endpoint == first.endpoint for observation in seen)
    if not flags:
        assert seen[-1].answers is False
    await replica.stop(deadline_s=5)


async def test_trap_04_a_hung_server_info_delays_no_observation(
    run: RunDir, make_config: MakeConfig, until: Until, session: aiohttp.ClientSession
) -> None:
    replica = one_replica(make_config("--play-hang-info"), run)
    replica.launch(time.time())
    await until(replica, ReplicaPhase.READY)
    now = time.time()
    for second in range(1, 6):
        began = time.monotonic()
        seen = await replica.observe(session, now + second)
        assert time.monotonic() - began < 1.5
        assert seen.phase is ReplicaPhase.READY
        assert seen.version is None
    await replica.stop(deadline_s=5)


async def test_trap_04_the_version_is_read_where_the_server_answers(
    run: RunDir, make_config: MakeConfig, until: Until, session: aiohttp.ClientSession
) -> None:
    replica = one_replica(make_config(), run)
    replica.launch(time.time())
    seen = await until(replica, ReplicaPhase.READY)
    deadline = time.monotonic() + 20
    while seen.version is None:
        assert time.monotonic() < deadline
        await asyncio.sleep(0.02)
        seen = await replica.observe(session, time.time())
    assert seen.version == "0.5.23"
    await replica.stop(deadline_s=5)


async def test_trap_07_the_multiprocess_directory_of_prometheus_is_not_inherited(
    run: RunDir, make_config: MakeConfig, until: Until, tmp_path: Path
) -> None:
    dump = tmp_path / "environ.json"
    environ = {**os.environ, "PROMETHEUS_MULTIPROC_DIR": str(tmp_path)}
    replica = one_replica(make_config("--play-dump-environ", str(dump)), run, environ)
    replica.launch(time.time())
    await until(replica, ReplicaPhase.READY)
    child = json.loads(dump.read_text())
    assert "PROMETHEUS_MULTIPROC_DIR" not in child
    assert child["HEADWAY_REPLICA"] == "0"
    await replica.stop(deadline_s=5)


async def test_trap_08_a_crash_ends_with_minus_9_and_is_told_in_words(
    run: RunDir, make_config: MakeConfig, until: Until
) -> None:
    words = "[2026-01-01 00:00:00] Scheduler hit an exception: Traceback\nRuntimeError: head_dim 96"
    replica = one_replica(make_config("--play-say", words), run)
    replica.launch(time.time())
    seen = await until(replica, ReplicaPhase.READY)
    assert seen.pid is not None
    os.kill(seen.pid, signal.SIGKILL)
    dead = await until(replica, ReplicaPhase.EXITED)
    assert dead.exit_code == -9
    assert dead.endpoint is None
    assert dead.reason is not None
    assert "it was killed (exit code -9). SGLang ends like this after an error in its scheduler" in dead.reason
    assert "RuntimeError: head_dim 96" in dead.reason
    await replica.stop(deadline_s=5)


def test_trap_08_exit_code_0_is_a_drain_or_a_crash_in_a_container() -> None:
    assert "asked it to drain" in exit_words(0)
    assert "exit code 137" in exit_words(137)
    assert "SIGSEGV" in exit_words(-signal.SIGSEGV)
    assert "SIGABRT" in exit_words(128 + signal.SIGABRT)
    assert "port" in exit_words(3)
    assert "not known" in exit_words(None)


def test_trap_09_speculation_that_would_silently_cap_the_concurrency_is_refused() -> None:
    speculative = ["--speculative-algorithm", "EAGLE3"]
    [fault] = flag_faults(speculative, requests_per_replica=64)
    assert "silently runs 48 requests at once" in fault
    assert '"--max-running-requests", "64"' in fault
    assert flag_faults([*speculative, "--max-running-requests", "64"], requests_per_replica=64) == []
    assert flag_faults(speculative, requests_per_replica=48) == []


async def test_trap_10_another_server_on_the_port_during_the_load_is_not_believed(
    run: RunDir, make_config: MakeConfig, until: Until, session: aiohttp.ClientSession
) -> None:
    port = free_port()
    replica = one_replica(make_config("--play-load-s", "1.5", port=port), run)
    replica.launch(time.time())
    with server_that_says_yes(port) as asked:
        for _ in range(5):
            seen = await replica.observe(session, time.time())
            assert seen.phase is ReplicaPhase.LOADING
            assert seen.endpoint is None
        assert "/ready" in asked
        failed = await until(replica, ReplicaPhase.START_FAILED)
    assert failed.exit_code == 3
    assert failed.reason is not None
    assert f"port {port} was taken by another process while the model was loaded" in failed.reason
    await replica.stop(deadline_s=5)


def test_trap_10_a_taken_port_refuses_the_start_before_the_load(run: RunDir, make_config: MakeConfig) -> None:
    port = free_port()
    replica = one_replica(make_config(port=port), run)
    with server_that_says_yes(port), pytest.raises(StartRefused, match=rf"port {port} is held by pid {os.getpid()} \("):
        replica.launch(time.time())
    assert not run.server_log("0").exists()
