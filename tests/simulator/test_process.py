"""The simulator as a process: start-up, exit codes, signals, children, and faults that need a process."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import aiohttp
import psutil
import pytest

from backend.simulator.launch import SimulatorProcess, SimulatorStartError, kill_session, run_simulator, start_simulator

REPOSITORY = Path(__file__).parents[2]


async def _until(condition: Callable[[], bool], timeout_s: float = 20.0) -> None:
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline
        await asyncio.sleep(0.02)


async def _chat(simulator: SimulatorProcess, **body: object) -> tuple[int, str]:
    message = {"messages": [{"role": "user", "content": "p"}], **body}
    async with (
        aiohttp.ClientSession() as session,
        session.post(simulator.url + "/v1/chat/completions", json=message) as response,
    ):
        reply = await response.json()
        return response.status, reply["choices"][0]["finish_reason"]


async def _status(simulator: SimulatorProcess, path: str) -> int:
    async with aiohttp.ClientSession() as session, session.get(simulator.url + path) as response:
        return response.status


def _is_open(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def _start_raw(*flags: str, stdout: int | None = None) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "backend.simulator", *flags]
    return subprocess.Popen(command, cwd=REPOSITORY, stdout=stdout, stderr=subprocess.PIPE, start_new_session=True)


async def test_it_says_what_sglang_says_and_binds_only_after_the_load(tmp_path: Path) -> None:
    flags = ("--speed", "50", "--mean", "3000", "--load-s", "0.6", "--enable-metrics", "--speculative-algorithm", "EAGLE")
    started = time.monotonic()
    with run_simulator(*flags, directory=tmp_path) as simulator:
        assert time.monotonic() - started >= 0.6
        await _chat(simulator)
        log = simulator.log()
        for words in (
            "Max running requests is reset to 48 for speculative decoding",
            "Load weight begin.",
            "Completed | 10/10",
            "max_total_num_tokens=1200000, chunked_prefill_size=",
            "INFO:     Uvicorn running on http://127.0.0.1:",
            "The server is fired up and ready to roll!",
            "Prefill batch, #new-seq: 1, #new-token: ",
            "Decode batch, #running-req: 1, #token: ",
            "accept len: 2.60, accept rate: ",
            "gen throughput (token/s): ",
        ):
            assert words in log, words
        assert log.index("Load weight end.") < log.index("Uvicorn running")
        assert '"POST /v1/chat/completions HTTP/1.1" 200 OK' in simulator.stdout.read_text()


async def test_sigterm_lets_requests_finish_with_health_503_and_exits_with_0(tmp_path: Path) -> None:
    with run_simulator("--speed", "20", "--mean", "1500", "--log-sd", "0", directory=tmp_path) as simulator:
        task = asyncio.create_task(_chat(simulator))
        await _until(lambda: "Prefill batch" in simulator.log())
        simulator.process.terminate()
        await _until(lambda: "Draining requests" in simulator.log())
        assert await _status(simulator, "/health") == 503
        assert await task == (200, "stop")
        assert await asyncio.to_thread(simulator.process.wait, 20) == 0
        assert "Remaining number of requests 1. Remaining requests remaining_rids=['" in simulator.log()
        assert not _is_open(simulator.port)


async def test_sigterm_during_the_load_ends_it_at_once(tmp_path: Path) -> None:
    process = _start_raw("--load-s", "60", "--port", "0")
    try:
        children = psutil.Process(process.pid)
        await _until(lambda: len(children.children()) == 2)
        pids = [child.pid for child in children.children()]
        process.terminate()
        assert process.wait(10) == -signal.SIGTERM
        await _until(lambda: not any(_alive(pid) for pid in pids))
    finally:
        kill_session(process)
        _close(process)


def _alive(pid: int) -> bool:
    return psutil.pid_exists(pid) and psutil.Process(pid).status() != psutil.STATUS_ZOMBIE


def _close(process: subprocess.Popen[bytes]) -> None:
    for stream in (process.stdout, process.stderr):
        if stream is not None:
            stream.close()


def test_an_unknown_flag_exits_with_2(tmp_path: Path) -> None:
    with pytest.raises(SimulatorStartError, match=r"(?s)exit code 2.*unrecognized arguments: --no-such-flag"):
        start_simulator("--no-such-flag", directory=tmp_path)


def test_a_port_in_use_costs_the_whole_load_and_exits_with_3(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        with pytest.raises(SimulatorStartError, match=r"(?s)exit code 3.*Load weight end.*address already in use"):
            start_simulator("--port", port, directory=tmp_path)


def test_a_load_that_hangs_never_binds_the_port(tmp_path: Path) -> None:
    with pytest.raises(SimulatorStartError, match="5/10"):
        start_simulator("--fault", "hang-at-start", directory=tmp_path, timeout_s=1.5)


@pytest.mark.parametrize("name", ["sglang::scheduler", "sglang::detokenizer"])
async def test_the_death_of_a_child_kills_the_server_with_minus_9(tmp_path: Path, name: str) -> None:
    with run_simulator("--speed", "50", directory=tmp_path) as simulator:
        children = simulator.children()
        assert set(children) == {"sglang::scheduler", "sglang::detokenizer"}
        os.kill(children[name], signal.SIGKILL)
        assert await asyncio.to_thread(simulator.process.wait, 20) == -signal.SIGKILL
        assert "crashed with exit code -9. Triggering SIGQUIT for cleanup..." in simulator.log()
        await _until(lambda: not any(_alive(pid) for pid in children.values()))


async def test_children_die_with_their_parent(tmp_path: Path) -> None:
    with run_simulator("--tp-size", "2", directory=tmp_path) as simulator:
        children = simulator.children()
        assert set(children) == {"sglang::scheduler_TP0", "sglang::scheduler_TP1", "sglang::detokenizer"}
        simulator.process.kill()
        await _until(lambda: not any(_alive(pid) for pid in children.values()))


async def test_a_stopped_scheduler_stops_everything_until_it_continues(tmp_path: Path) -> None:
    with run_simulator("--speed", "50", "--health-delay-s", "0", directory=tmp_path) as simulator:
        pid = simulator.children()["sglang::scheduler"]
        os.kill(pid, signal.SIGSTOP)
        await asyncio.sleep(0.5)
        task = asyncio.create_task(_chat(simulator))
        assert await _status(simulator, "/health") == 503
        assert not task.done()
        os.kill(pid, signal.SIGCONT)
        assert (await task)[0] == 200


async def test_it_dies_at_the_request_asked_for(tmp_path: Path) -> None:
    with run_simulator("--speed", "500", "--fault", "die-at-request=3", directory=tmp_path) as simulator:
        assert (await _chat(simulator))[0] == 200
        assert (await _chat(simulator))[0] == 200
        with pytest.raises(aiohttp.ClientError):
            await _chat(simulator)
        assert await asyncio.to_thread(simulator.process.wait, 20) == -signal.SIGKILL
        await _until(lambda: not _is_open(simulator.port))


async def test_a_child_may_hold_the_port_after_the_death(tmp_path: Path) -> None:
    with run_simulator("--speed", "500", "--fault", "die-at-request=1:hold", directory=tmp_path) as simulator:
        with pytest.raises(aiohttp.ClientError):
            await _chat(simulator)
        await asyncio.to_thread(simulator.process.wait, 20)
        assert _is_open(simulator.port)
        kill_session(simulator.process)
        await _until(lambda: not _is_open(simulator.port))


async def test_an_orphan_of_the_session_survives_the_server(tmp_path: Path) -> None:
    with run_simulator("--fault", "orphan-child", directory=tmp_path) as simulator:
        session = os.getsid(simulator.pid)

        def orphans() -> list[int]:
            return [one.pid for one in psutil.process_iter() if _session_of(one.pid) == session and one.pid != simulator.pid]

        known = set(simulator.children().values())
        (orphan,) = set(orphans()) - known
        assert psutil.Process(orphan).cmdline()[0].startswith("sglang::scheduler")
        assert psutil.Process(orphan).ppid() != simulator.pid
        simulator.process.kill()
        simulator.process.wait()
        await _until(lambda: orphans() == [orphan])


def _session_of(pid: int) -> int | None:
    try:
        return os.getsid(pid)
    except ProcessLookupError:
        return None


async def test_a_flood_goes_to_stdout(tmp_path: Path) -> None:
    with run_simulator("--fault", "flood-stdout=2", directory=tmp_path) as simulator:
        await _until(lambda: simulator.stdout.stat().st_size >= 2 * 2**20)
        assert await _status(simulator, "/health") == 200


async def test_a_flood_blocks_the_server_until_somebody_reads_the_pipe(tmp_path: Path) -> None:
    port_file = tmp_path / "port"
    flags = ("--port", "0", "--port-file", str(port_file), "--health-delay-s", "0")
    process = _start_raw(*flags, stdout=subprocess.PIPE)
    try:
        await _until(port_file.exists)
        url = f"http://127.0.0.1:{int(port_file.read_text())}"
        patience = aiohttp.ClientTimeout(total=1.0)
        async with aiohttp.ClientSession(timeout=patience) as session:
            with contextlib.suppress(asyncio.TimeoutError):
                await session.post(url + "/simulator/faults", json={"flood-stdout": 2})
            with pytest.raises(asyncio.TimeoutError):
                await session.get(url + "/health")
            assert process.stdout is not None
            await asyncio.to_thread(process.stdout.read, 2 * 2**20)
            async with session.get(url + "/health") as response:
                assert response.status == 200
    finally:
        kill_session(process)
        _close(process)
