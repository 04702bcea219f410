"""A server process of this machine: started, watched, taken over, ended."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import aiohttp
import pytest
from stand_in_run import STAND_IN, MakeConfig, Until, one_replica

from backend.job.engine import AdoptOutcome, Replica, ReplicaPhase, StartRefused
from backend.job.identity import owned_processes
from backend.job.ports import free_port, is_free
from backend.job.process_tree import command_line, is_alive, read_stat, send_signal
from backend.job.server_record import ServerRecord, load_record, save_record
from backend.job.server_stop import StopTimes
from backend.run_dir import RunDir


def record_of(run: RunDir) -> ServerRecord:
    record = load_record(run.servers, "0")
    assert record is not None
    return record


async def wait_for(condition: object, timeout_s: float = 20.0) -> None:
    assert callable(condition)
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline
        await asyncio.sleep(0.02)


async def test_a_server_is_started_seen_ready_and_stopped(
    run: RunDir, make_config: MakeConfig, until: Until, session: aiohttp.ClientSession
) -> None:
    replica = one_replica(make_config("--play-children", "2"), run)
    assert replica.adopt().outcome is AdoptOutcome.NOTHING
    replica.launch(time.time())
    seen = await until(replica, ReplicaPhase.READY)
    assert seen.pid is not None
    assert seen.endpoint is not None
    assert seen.endpoint.owned
    processes = owned_processes(record_of(run))
    assert len(processes) == 3
    port = int(seen.endpoint.base_url.rpartition(":")[2])
    report = await replica.stop(deadline_s=5)
    assert report.clean, report
    assert report.exit_code == 0
    assert is_free(port)
    assert not any(is_alive(mark) for mark in processes)
    assert list(run.servers.iterdir()) == []
    assert (await replica.observe(session, time.time())).phase is ReplicaPhase.ABSENT


async def test_the_key_is_neither_in_the_command_line_nor_readable_by_others(
    run: RunDir, make_config: MakeConfig, until: Until
) -> None:
    replica = one_replica(make_config(), run)
    replica.launch(time.time())
    seen = await until(replica, ReplicaPhase.READY)
    assert seen.endpoint is not None
    key = seen.endpoint.api_key
    assert key
    assert seen.pid is not None
    assert key not in command_line(seen.pid)
    assert key not in " ".join(seen.command)
    assert key not in repr(seen)
    assert key not in repr(record_of(run))
    for file in [*run.servers.iterdir(), run.server_log("0")]:
        assert file.stat().st_mode & 0o077 == 0
    await replica.stop(deadline_s=5)


async def test_the_environment_names_the_run_and_forwards_secrets_by_name(
    run: RunDir, make_config: MakeConfig, until: Until, tmp_path: Path
) -> None:
    dump = tmp_path / "environ.json"
    config = make_config("--play-dump-environ", str(dump), env={"A_SETTING": "1"}, env_from=["HF_TOKEN"], gpus=[4, 5])
    replica = one_replica(config, run, {**os.environ, "HF_TOKEN": "hf-secret"})
    replica.launch(time.time())
    await until(replica, ReplicaPhase.READY)
    env = json.loads(dump.read_text())
    assert env["HEADWAY_RUN"] == str(run.root)
    assert env["HEADWAY_REPLICA"] == "0"
    assert env["HEADWAY_LAUNCH"] == record_of(run).launch
    assert env["A_SETTING"] == "1"
    assert env["HF_TOKEN"] == "hf-secret"
    assert env["CUDA_VISIBLE_DEVICES"] == "4,5"
    assert "hf-secret" not in (run.servers / "0.json").read_text()
    await replica.stop(deadline_s=5)


def test_a_missing_forwarded_variable_refuses_the_start(run: RunDir, make_config: MakeConfig) -> None:
    replica = one_replica(make_config(env_from=["HF_TOKEN"]), run, {})
    with pytest.raises(StartRefused, match=r"names HF_TOKEN, which is not set"):
        replica.launch(time.time())
    assert list(run.servers.iterdir()) == []


def test_a_command_that_cannot_be_run_refuses_the_start(run: RunDir, make_config: MakeConfig) -> None:
    replica = one_replica(make_config(command=["/nowhere/python"]), run)
    with pytest.raises(StartRefused, match=r"/nowhere/python cannot be run: No such file"):
        replica.launch(time.time())
    assert list(run.servers.iterdir()) == []


def test_a_log_that_cannot_be_opened_refuses_the_start(run: RunDir, make_config: MakeConfig) -> None:
    run.server_log("0").mkdir()
    with pytest.raises(StartRefused, match=r"server-0\.log cannot be written: Is a directory\. Make room there"):
        one_replica(make_config(), run).launch(time.time())
    assert list(run.servers.iterdir()) == []


async def test_a_server_that_ignores_sigterm_is_killed_after_the_deadline(
    run: RunDir, make_config: MakeConfig, until: Until
) -> None:
    replica = one_replica(make_config("--play-ignore-sigterm", "--play-children", "1"), run)
    replica.launch(time.time())
    await until(replica, ReplicaPhase.READY)
    processes = owned_processes(record_of(run))
    report = await replica.stop(deadline_s=0.3)
    assert report.clean, report
    assert report.exit_code == -signal.SIGKILL
    assert report.killed >= 1
    assert "did not end within 0.3 s" in report.message
    assert not any(is_alive(mark) for mark in processes)


async def test_an_orphan_and_a_runaway_child_are_found_and_ended(run: RunDir, make_config: MakeConfig, until: Until) -> None:
    replica = one_replica(make_config("--play-orphan", "--play-runaway"), run)
    replica.launch(time.time())
    seen = await until(replica, ReplicaPhase.READY)
    processes = owned_processes(record_of(run))
    stats = [stat for mark in processes if (stat := read_stat(mark.pid)) is not None]
    assert seen.pid is not None
    assert [stat for stat in stats if stat.session == seen.pid and seen.pid not in (stat.parent, stat.mark.pid)]
    assert [stat for stat in stats if stat.session != seen.pid]
    report = await replica.stop(deadline_s=5)
    assert report.clean, report
    assert not any(is_alive(mark) for mark in processes)


async def test_a_port_held_by_a_child_after_death_is_freed_at_the_stop(
    run: RunDir, make_config: MakeConfig, until: Until
) -> None:
    replica = one_replica(make_config("--play-child-holds-port"), run)
    replica.launch(time.time())
    seen = await until(replica, ReplicaPhase.READY)
    assert seen.endpoint is not None
    port = int(seen.endpoint.base_url.rpartition(":")[2])
    main = record_of(run).main
    assert main is not None
    send_signal(main, signal.SIGKILL)
    dead = await until(replica, ReplicaPhase.EXITED)
    assert dead.pid is None
    assert not is_free(port)
    with pytest.raises(StartRefused, match=r"still has 1 processes .* stop it first"):
        replica.launch(time.time())
    assert (await replica.stop(deadline_s=5)).clean
    assert is_free(port)
    replica.launch(time.time())
    await until(replica, ReplicaPhase.READY)
    await replica.stop(deadline_s=5)


async def test_gpu_memory_that_stays_in_use_is_reported(
    run: RunDir, make_config: MakeConfig, until: Until, monkeypatch: pytest.MonkeyPatch
) -> None:
    used = [2 << 30]
    asked: list[object] = []

    def gpu_memory_used(gpus: object) -> int:
        asked.append(gpus)
        return used[0]

    monkeypatch.setattr("backend.job.server.StopTimes", lambda deadline_s: StopTimes(deadline_s, gpu_free_s=0.1))
    replica = one_replica(make_config(gpus=[3]), run, gpu_memory_used=gpu_memory_used)
    replica.launch(time.time())
    await until(replica, ReplicaPhase.READY)
    used[0] = 60 << 30
    report = await replica.stop(deadline_s=5)
    assert not report.clean
    assert "60.0 GiB of GPU memory are still in use (2.0 GiB before" in report.message
    assert asked[0] == [3]


async def test_a_start_that_fails_names_the_real_error_of_this_life(run: RunDir, make_config: MakeConfig, until: Until) -> None:
    run.server_log("0").write_text("torch.OutOfMemoryError: CUDA out of memory\n")  # of a former life
    words = "launch_server.py: error: unrecognized arguments: --mem-fraktion"
    replica = one_replica(make_config("--play-say", words, "--play-exit", "2"), run)
    replica.launch(time.time())
    seen = await until(replica, ReplicaPhase.START_FAILED)
    assert seen.exit_code == 2
    assert seen.reason is not None
    assert "does not know: --mem-fraktion" in seen.reason
    await replica.stop(deadline_s=5)


async def test_a_load_fails_only_when_nothing_moves(
    run: RunDir, make_config: MakeConfig, session: aiohttp.ClientSession
) -> None:
    replica = one_replica(make_config("--play-load-s", "60", "--play-say", "Loading shards", ready_timeout_s=100), run)
    start = time.time()
    replica.launch(start)
    log = run.server_log("0")
    await wait_for(lambda: log.exists() and log.stat().st_size > 0)
    await replica.observe(session, start + 1)
    with log.open("a") as file:
        file.write("still loading\n")
    moved = await replica.observe(session, start + 90)
    assert moved.last_movement_at == start + 90
    assert (await replica.observe(session, start + 189)).phase is ReplicaPhase.LOADING
    failed = await replica.observe(session, start + 191)
    assert failed.phase is ReplicaPhase.START_FAILED
    assert failed.pid is not None
    assert failed.reason is not None
    assert "for 101 s nothing moved" in failed.reason
    assert "still loading" in failed.reason
    assert "raise engine.ready_timeout_s" in failed.reason
    assert (await replica.stop(deadline_s=5)).clean


async def test_aborts_carry_the_key_and_each_request_id(
    run: RunDir, make_config: MakeConfig, until: Until, session: aiohttp.ClientSession, tmp_path: Path
) -> None:
    aborts = tmp_path / "aborts"
    replica = one_replica(make_config("--play-record-aborts", str(aborts)), run)
    replica.launch(time.time())
    await until(replica, ReplicaPhase.READY)
    await replica.abort(session, ["a" * 32, "b" * 32])
    await replica.abort(session, None)
    sent = [json.loads(line) for line in aborts.read_text().splitlines()]
    assert sorted(body["rid"] for body in sent[:2]) == ["a" * 32, "b" * 32]
    assert sent[2] == {"rid": "", "abort_all": True}
    await replica.stop(deadline_s=5)


# taking over


def start_and_leave(run: RunDir, *flags: str, wait_ready: bool = True) -> None:
    """Starts a server as a supervisor that is then killed: in a process of its own."""
    program = f"""
import asyncio, os, sys, time
sys.path[:0] = {[str(STAND_IN.parent), os.getcwd()]!r}
import aiohttp
from pathlib import Path
from stand_in_run import one_replica
from backend.config import RunConfig
from backend.run_dir import RunDir

async def main():
    config = RunConfig.model_validate({{
        "name": "test", "model": {{"path": "stand-in/model"}}, "datasets": [{{"name": "A", "path": "a.jsonl"}}],
        "engine": {{"kind": "local", "command": [sys.executable, "-S", {str(STAND_IN)!r}], "args": {list(flags)!r}}}}})
    replica = one_replica(config, RunDir(Path({str(run.root)!r})))
    replica.launch(time.time())
    async with aiohttp.ClientSession() as session:
        while {wait_ready} and (await replica.observe(session, time.time())).phase != "ready":
            await asyncio.sleep(0.02)
    os.kill(os.getpid(), 9)

asyncio.run(main())
"""
    done = subprocess.run([sys.executable, "-c", program], check=False, timeout=60)
    assert done.returncode == -signal.SIGKILL


async def test_a_server_outlives_its_supervisor_and_is_kept(
    run: RunDir, make_config: MakeConfig, session: aiohttp.ClientSession
) -> None:
    start_and_leave(run)
    before = record_of(run)
    replica = one_replica(make_config(), run)
    began = time.monotonic()
    result = replica.adopt()
    assert result.outcome is AdoptOutcome.ADOPTED, result
    seen = await replica.observe(session, time.time())
    assert time.monotonic() - began < 5
    assert seen.phase is ReplicaPhase.READY
    assert before.main is not None
    assert seen.pid == before.main.pid
    assert seen.endpoint is not None
    assert seen.endpoint.launch == before.launch
    assert seen.endpoint.api_key == before.api_key
    assert (await replica.stop(deadline_s=5)).clean


async def test_a_server_that_still_loads_is_kept_too(run: RunDir, make_config: MakeConfig, until: Until) -> None:
    start_and_leave(run, "--play-load-s", "1.5", wait_ready=False)
    replica = one_replica(make_config(), run)
    assert replica.adopt().outcome is AdoptOutcome.ADOPTED
    await until(replica, ReplicaPhase.READY)
    await replica.stop(deadline_s=5)


async def test_a_server_started_just_before_the_supervisor_died_is_found_by_its_environment(
    run: RunDir, make_config: MakeConfig, until: Until
) -> None:
    start_and_leave(run)
    record = record_of(run)
    main = record.main
    save_record(run.servers, replace(record, main=None, children=[], ready_at=None))
    replica = one_replica(make_config(), run)
    assert replica.adopt().outcome is AdoptOutcome.ADOPTED
    seen = await until(replica, ReplicaPhase.READY)
    assert main is not None
    assert seen.pid == main.pid
    await replica.stop(deadline_s=5)


def test_the_key_of_a_server_whose_record_is_gone_is_removed(run: RunDir, make_config: MakeConfig) -> None:
    (run.servers / "0.yaml").touch()  # the supervisor was killed between removing the record and its key file
    replica = one_replica(make_config(), run)
    assert replica.adopt().outcome is AdoptOutcome.NOTHING
    assert list(run.servers.iterdir()) == []


async def test_a_server_without_its_record_is_ended(run: RunDir, make_config: MakeConfig) -> None:
    start_and_leave(run, "--play-children", "1")
    processes = owned_processes(record_of(run))
    (run.servers / "0.json").write_text("{ torn")
    result = one_replica(make_config(), run).adopt()
    assert result.outcome is AdoptOutcome.REAPED, result
    assert len(processes) == 2
    assert not any(is_alive(mark) for mark in processes)


async def test_children_of_a_server_that_died_unwatched_are_ended(run: RunDir, make_config: MakeConfig) -> None:
    start_and_leave(run, "--play-children", "2", "--play-orphan")
    record = record_of(run)
    processes = owned_processes(record)
    assert record.main is not None
    os.kill(record.main.pid, signal.SIGKILL)
    main = record.main
    await wait_for(lambda: not is_alive(main))
    result = one_replica(make_config(), run).adopt()
    assert result.outcome is AdoptOutcome.REAPED, result
    assert "3 of its processes were ended" in (result.reason or "")
    assert not any(is_alive(mark) for mark in processes)


async def test_a_server_that_does_not_know_its_key_is_not_used(run: RunDir, make_config: MakeConfig) -> None:
    start_and_leave(run)
    save_record(run.servers, replace(record_of(run), api_key="headway-another"))
    result = one_replica(make_config(), run).adopt()
    assert result.outcome is AdoptOutcome.REAPED
    assert "does not know the API key" in (result.reason or "")


async def test_a_server_too_busy_to_answer_is_kept(
    run: RunDir, make_config: MakeConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("backend.job.identity._KEY_CHECK_TIMEOUT_S", 0.2)
    hang = tmp_path / "hang"
    start_and_leave(run, "--play-hang-file", str(hang))
    hang.touch()
    replica = one_replica(make_config(), run)
    result = replica.adopt()
    hang.unlink()
    assert result.outcome is AdoptOutcome.ADOPTED
    assert "did not answer in time" in (result.reason or "")
    await replica.stop(deadline_s=5)


async def test_a_process_that_got_the_number_of_ours_is_left_alone(run: RunDir, make_config: MakeConfig) -> None:
    start_and_leave(run)
    record = record_of(run)
    for mark in owned_processes(record):
        send_signal(mark, signal.SIGKILL)
    main = record.main
    assert main is not None
    await wait_for(lambda: not is_alive(main))
    other = subprocess.Popen([sys.executable, "-S", "-c", "import time; time.sleep(60)"], start_new_session=True)
    try:
        save_record(run.servers, replace(record, main=replace(main, pid=other.pid), children=[replace(main, pid=other.pid)]))
        assert one_replica(make_config(), run).adopt().outcome is AdoptOutcome.NOTHING
        assert other.poll() is None
    finally:
        other.kill()
        other.wait()


async def test_marks_of_another_boot_mean_nothing(run: RunDir, make_config: MakeConfig) -> None:
    other = subprocess.Popen([sys.executable, "-S", "-c", "import time; time.sleep(60)"], start_new_session=True)
    try:
        stat = read_stat(other.pid)
        assert stat is not None
        save_record(
            run.servers,
            ServerRecord("0", "aa", "another boot", "127.0.0.1", free_port(), "k", [], 0.0, 0, main=stat.mark, ready_at=1.0),
        )
        assert one_replica(make_config(), run).adopt().outcome is AdoptOutcome.NOTHING
        assert other.poll() is None
    finally:
        other.kill()
        other.wait()


def test_somebody_elses_server_on_the_port_is_named_and_left_alone(run: RunDir, make_config: MakeConfig) -> None:
    with socket.create_server(("127.0.0.1", 0)) as foreign:
        port = foreign.getsockname()[1]
        replica: Replica = one_replica(make_config(port=port), run)
        result = replica.adopt()
        assert result.outcome is AdoptOutcome.FOREIGN
        assert f"port {port} is held by pid {os.getpid()}" in (result.reason or "")
