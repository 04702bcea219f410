"""The command line against the real supervisor and the simulator, as a user runs it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from backend.job.process_tree import all_processes, read_environ

ROOT = Path(__file__).resolve().parents[2]
CONFIG = """
name = "demo"
[model]
path = "tiny"
[engine]
kind = "simulated"
args = ["--speed", "3", "--random-seed", "1"]
[generation]
concurrency = 4
max_new_tokens = 200
[[datasets]]
name = "alpha"
path = "prompts.jsonl"
max_samples = 30
[[datasets]]
name = "beta"
path = "prompts.jsonl"
max_samples = 20
"""

Cli = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def cli(tmp_path: Path) -> Iterator[Cli]:
    (tmp_path / "prompts.jsonl").write_text("".join(json.dumps({"id": i, "prompt": f"say {i}"}) + "\n" for i in range(40)))
    (tmp_path / "demo.toml").write_text(CONFIG)

    def call(*arguments: str, code: int = 0) -> subprocess.CompletedProcess[str]:
        done = subprocess.run(command(tmp_path, *arguments), **options(tmp_path), timeout=100, check=False)
        assert done.returncode == code, (arguments, done.stdout, done.stderr)
        assert "Traceback" not in done.stderr
        return done

    yield call
    # only this test's: its supervisor by the run it was given, its server by the run in its environment
    root = str(tmp_path / "runs/demo")
    for pid, stat in all_processes().items():
        ours = stat.alive and (root in cmdline(pid) or (read_environ(pid) or {}).get("HEADWAY_RUN") == root)
        if ours and pid != os.getpid():
            os.kill(pid, signal.SIGKILL)


def command(folder: Path, *arguments: str) -> list[str]:
    return [sys.executable, "-m", "backend", *arguments]


def options(folder: Path) -> dict[str, Any]:
    environment = {**os.environ, "HEADWAY_RUNS": str(folder / "runs"), "PYTHONPATH": str(ROOT)}
    return {"cwd": folder, "env": environment, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}


def cmdline(pid: int) -> list[str]:
    try:
        return psutil.Process(pid).cmdline()
    except psutil.Error:
        return []


def status(cli: Cli) -> dict[str, Any]:
    return dict(json.loads(cli("status", "demo", "--json").stdout))


@pytest.mark.drill
def test_a_run_is_created_steered_killed_and_finished_from_the_shell(cli: Cli, tmp_path: Path) -> None:
    cli("create", "demo.toml")
    starters = [subprocess.Popen(command(tmp_path, "start", "demo", "--no-wait"), **options(tmp_path)) for _ in range(3)]
    told = [starter.communicate(timeout=60)[0] for starter in starters]
    assert sum("demo is running" in text for text in told) == 1
    assert sum("already running" in text for text in told) == 2
    cli("wait", "demo", "--until", "ready", "--timeout", "60")
    cli("pause", "demo", "alpha", "--now")
    cli("wait", "demo", "--until", "alpha=paused", "--timeout", "30")
    cli("set", "demo", "concurrency=8")
    first = status(cli)
    assert first["supervisor"]["state"] == "alive"
    server = first["replicas"][0]["pid"]

    os.kill(first["supervisor"]["pid"], signal.SIGKILL)
    deadline = time.monotonic() + 20
    while (dead := status(cli))["supervisor"]["state"] != "dead":
        assert time.monotonic() < deadline, dead["supervisor"]
    assert dead["totals"]["finished_samples"] >= first["totals"]["finished_samples"]
    assert "dead" in cli("wait", "demo", code=1).stderr
    assert "the wish waits until" in cli("resume", "demo", "alpha").stdout

    cli("start", "demo")
    cli("wait", "demo", "--until", "ready", "--timeout", "60")
    second = status(cli)
    assert second["replicas"][0]["pid"] == server
    assert second["concurrency"] == 8
    assert "is finished: 50 samples" in cli("wait", "demo", "--timeout", "90").stdout
    last = status(cli)
    assert [(d["state"], d["finished_samples"]) for d in last["datasets"]] == [("done", 30), ("done", 20)]
    assert (last["phase"], last["exit_code"], last["unanswered_intents"]) == ("finished", 0, 0)
    assert not psutil.pid_exists(server)
