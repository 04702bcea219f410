"""What benches are built from: simulators and runs as real processes on chosen cores, and how a process's use is measured."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

from backend.heartbeat import Heartbeat, read_heartbeat
from tests.runs.live_run import LiveRun, make_run

NAMES = ("Ada", "Bela", "Chen", "Dana", "Emil", "Fatou", "Goran", "Hana", "Ines", "Jun")
GOODS = ("apples", "stickers", "pencils", "marbles", "stamps", "buttons", "coins", "shells", "cards", "beads")


@contextmanager
def on_core(number: int) -> Iterator[None]:
    """Processes started in here run on one core only (of those that we may use, counted round)."""
    allowed = os.sched_getaffinity(0)
    cores = sorted(allowed)
    os.sched_setaffinity(0, {cores[number % len(cores)]})
    try:
        yield
    finally:
        os.sched_setaffinity(0, allowed)


@contextmanager
def simulator(folder: Path, *args: str) -> Iterator[str]:
    """A simulated server that nobody supervises. Yields its URL."""
    port_file, log = folder / "port", folder / "simulator.log"
    command = [sys.executable, "-m", "backend.simulator", "--port", "0", "--port-file", str(port_file), "--no-children"]
    with log.open("wb") as output:
        process = subprocess.Popen(
            [*command, "--log-level", "warning", *args], stdin=subprocess.DEVNULL, stdout=output, stderr=output
        )
    try:
        deadline = time.monotonic() + 60
        while not port_file.exists() or not port_file.read_text().strip():
            assert process.poll() is None, log.read_text()
            assert time.monotonic() < deadline, "the simulator does not start"
            time.sleep(0.05)
        yield f"http://127.0.0.1:{port_file.read_text().strip()}"
    finally:
        process.terminate()
        process.wait(timeout=30)


@contextmanager
def live_run(folder: Path, datasets: Sequence[Mapping[str, Any]], **settings: Any) -> Iterator[LiveRun]:
    """A created run; whatever it started is gone afterwards."""
    run = make_run(folder, [dict(dataset) for dataset in datasets], **settings)
    try:
        yield run
    finally:
        run.cleanup()


def attached(url: str, **more: Any) -> dict[str, Any]:
    """The [engine] section for a server that runs already."""
    return {"kind": "attached", "urls": [url], "args": [], **more}


def write_word_problems(path: Path, count: int, *, seed: int = 0) -> None:
    """Prompts in the shape of GSM8K (a `question` of 150 to 300 characters, no id), each different."""
    rng = random.Random(seed)
    with path.open("w") as file:
        for index in range(count):
            one, other, goods = rng.choice(NAMES), rng.choice(NAMES), rng.choice(GOODS)
            a, b, c = rng.randrange(3, 99), rng.randrange(2, 40), rng.randrange(2, 12)
            question = (
                f"{one} has {a} {goods} in box {index} and buys {b} more packs with {c} {goods} in each of them. Later {other} "
                f"takes a third of all the {goods} and gives {c} back. How many {goods} does {one} have at the end?"
            )
            file.write(json.dumps({"question": question}) + "\n")


@dataclass(frozen=True, slots=True)
class Use:
    """What a process has used since its start, and at most."""

    cpu_s: float
    rss_bytes: int
    peak_rss_bytes: int
    at: float  # monotonic


def use_of(pid: int) -> Use:
    """The process alone, its children not counted."""
    process = psutil.Process(pid)
    times = process.cpu_times()
    status = Path(f"/proc/{pid}/status").read_text()
    peak_kib = next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmHWM"))
    return Use(times.user + times.system, process.memory_info().rss, peak_kib * 1024, time.monotonic())


def share_of_core(before: Use, after: Use) -> float:
    """CPU seconds a second between the two."""
    return (after.cpu_s - before.cpu_s) / (after.at - before.at)


def next_heartbeat(run: LiveRun) -> Heartbeat:
    """Waits for the next one, so that its figures are of this moment."""
    last, deadline = read_heartbeat(run.run), time.monotonic() + 30
    while True:
        heartbeat = read_heartbeat(run.run)
        if heartbeat is not None and (last is None or heartbeat.at > last.at):
            return heartbeat
        assert time.monotonic() < deadline, f"no heartbeat\n{run.story()}"
        time.sleep(0.01)
