"""2,000 requests in flight: what the supervisor holds in memory while they come and go, answers of 2,000 tokens on average."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

from tests.bench.figure import Figure, at_least, at_most, told
from tests.bench.parts import attached, live_run, share_of_core, simulator, use_of, write_word_problems

CONCURRENCY = 2_000
PROMPTS = 50_000
MEASURED_S = 30.0
# At --speed 1000 this curve makes 100,000 tokens/s of 2,000 requests: about 50 samples a second come and go.
CURVE = "1:1,2000:100"


def measure(folder: Path) -> Iterator[Figure]:
    """Peak memory since the start, and how many were really in flight."""
    write_word_problems(folder / "problems.jsonl", PROMPTS)
    limits = ["--max-running-requests", "4000", "--max-total-tokens", "100000000"]
    with simulator(folder, "--speed", "1000", "--curve", CURVE, *limits) as url:
        generation = {"concurrency": CONCURRENCY, "max_new_tokens": 16_000}
        dataset = {"name": "problems", "path": "problems.jsonl"}
        with live_run(folder, [dataset], engine=attached(url), generation=generation) as run:
            pid = run.start()
            run.wait(lambda status: status.in_flight >= CONCURRENCY, what="all slots taken")
            before = use_of(pid)
            time.sleep(MEASURED_S)
            after, status = use_of(pid), run.status()
    yield at_most("memory of the supervisor, peak (MB)", after.peak_rss_bytes / 1e6, 400)
    yield at_least("requests in flight", status.in_flight, CONCURRENCY)
    yield told("memory at the end (MB)", after.rss_bytes / 1e6)
    yield told("finished meanwhile", status.datasets[0].finished_samples)
    yield told("the supervisor's share of a core", share_of_core(before, after), "{:.0%}")
