"""Mean requests with the server as a share of `concurrency`, four datasets one after the other, until the last one drains.

Counted from the rows: a request is in flight from `started_at` (sent) to `finished_at` (answered), so that what Headway does
between an answer and the next request counts as lost. Speeded up, that loss weighs a hundred times what it does in earnest.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from statistics import mean

from backend.records import Row
from tests.bench.figure import Figure, at_least, told
from tests.bench.parts import live_run, write_word_problems

CONCURRENCY = 64
DATASETS = ("A", "B", "C", "D")
PROMPTS = 400
SPEED = 100
MEAN_TOKENS = 2_000
TARGET = 0.98


def measure(folder: Path) -> Iterator[Figure]:
    """A whole run: two datasets end at their budget, one at its samples, one with its prompts."""
    for seed, name in enumerate(DATASETS):
        write_word_problems(folder / f"{name}.jsonl", PROMPTS if name != "D" else PROMPTS // 2, seed=seed)
    datasets = [{"name": name, "path": f"{name}.jsonl"} for name in DATASETS]
    limits = [{"token_budget": 200 * MEAN_TOKENS}, {"token_budget": 200 * MEAN_TOKENS}, {"max_samples": 200}, {}]
    args = ["--speed", str(SPEED), "--mean", str(MEAN_TOKENS), "--max-running-requests", str(2 * CONCURRENCY)]
    generation = {"concurrency": CONCURRENCY, "max_new_tokens": 8_000}
    made = [{**one, **limit} for one, limit in zip(datasets, limits, strict=True)]
    with live_run(folder, made, generation=generation, args=args) as run:
        run.start()
        run.wait_left(240)
        rows = run.rows()
    last_start = max(row.started_at for row in rows)
    first_start = min(row.started_at for row in rows)
    yield at_least("mean requests with the server ÷ concurrency", share_of_slots(rows, CONCURRENCY), TARGET, "{:.2%}")
    yield told("seconds from the first request to the last one's start", last_start - first_start, "{:.1f}")
    yield told("mean seconds a request", mean(row.finished_at - row.started_at for row in rows), "{:.2f}")
    yield told("samples", len(rows))


def share_of_slots(rows: Iterable[Row], concurrency: int) -> float:
    """The time-weighted mean of requests in flight ÷ `concurrency`, from the first start to the last start."""
    spans = [(row.started_at, row.finished_at) for row in rows]
    first, last = min(start for start, _ in spans), max(start for start, _ in spans)
    busy_s = sum(min(end, last) - start for start, end in spans)
    return busy_s / (concurrency * (last - first))
