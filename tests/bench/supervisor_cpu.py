"""The supervisor's share of a core while it drives four simulated replicas, 150 requests in flight at real speed."""

from __future__ import annotations

import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

from backend.config import TelemetryConfig, load, save
from tests.bench.figure import Figure, at_most, told
from tests.bench.parts import live_run, share_of_core, use_of, write_word_problems

REPLICAS = 4
CONCURRENCY = 150
MEASURED_S = 40.0
SCRAPED_EVERY_S = 5.0
TARGET_SHARE = 0.15


def measure(folder: Path) -> Iterator[Figure]:
    """CPU seconds of the supervisor alone, with telemetry each second, offered to Prometheus and scraped every 5 s."""
    write_word_problems(folder / "problems.jsonl", 5_000)
    generation = {"concurrency": CONCURRENCY, "max_new_tokens": 8_000}
    dataset = {"name": "problems", "path": "problems.jsonl", "token_budget": 100_000_000}
    engine = {"replicas": REPLICAS, "gpus": list(range(REPLICAS)), "args": ["--speed", "1", "--mean", "500"]}
    with live_run(folder, [dataset], engine=engine, generation=generation) as run:
        config = load(run.run.config)
        save(config.model_copy(update={"telemetry": TelemetryConfig(prometheus_port=0)}), run.run.config)
        pid = run.start()
        run.wait(lambda status: status.in_flight >= CONCURRENCY, what="all slots taken")
        time.sleep(5)
        before, first = use_of(pid), run.status()
        url = first.prometheus_url
        assert url is not None
        while time.monotonic() < before.at + MEASURED_S:
            with urllib.request.urlopen(url, timeout=10) as answer:
                answer.read()
            time.sleep(SCRAPED_EVERY_S)
        after, last = use_of(pid), run.status()
    yield at_most("the supervisor's share of a core", share_of_core(before, after), TARGET_SHARE, "{:.1%}")
    finished = last.datasets[0].finished_samples - first.datasets[0].finished_samples
    yield told("samples finished meanwhile", finished)
    yield told("memory of the supervisor, peak (MB)", after.peak_rss_bytes / 1e6)
