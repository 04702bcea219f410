"""The supervisor's share of a core while it drives four simulated replicas, 150 requests in flight at real speed."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

from tests.bench.figure import Figure, at_most, told
from tests.bench.parts import live_run, share_of_core, use_of, write_word_problems

REPLICAS = 4
CONCURRENCY = 150
MEASURED_S = 40.0
TARGET_SHARE = 0.15


def measure(folder: Path) -> Iterator[Figure]:
    """CPU seconds of the supervisor alone, telemetry and its Prometheus endpoint on."""
    write_word_problems(folder / "problems.jsonl", 5_000)
    generation = {"concurrency": CONCURRENCY, "max_new_tokens": 8_000}
    dataset = {"name": "problems", "path": "problems.jsonl", "token_budget": 100_000_000}
    engine = {"replicas": REPLICAS, "gpus": list(range(REPLICAS)), "args": ["--speed", "1", "--mean", "500"]}
    with live_run(folder, [dataset], engine=engine, generation=generation) as run:
        pid = run.start()
        run.wait(lambda status: status.in_flight >= CONCURRENCY, what="all slots taken")
        time.sleep(5)
        before, first = use_of(pid), run.status()
        time.sleep(MEASURED_S)
        after, last = use_of(pid), run.status()
    yield at_most("the supervisor's share of a core", share_of_core(before, after), TARGET_SHARE, "{:.1%}")
    finished = last.datasets[0].finished_samples - first.datasets[0].finished_samples
    yield told("samples finished meanwhile", finished)
    yield told("memory of the supervisor, peak (MB)", after.peak_rss_bytes / 1e6)
