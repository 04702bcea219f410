"""500 finished samples a second through request, answer of 2 kB and ledger commit, the whole supervisor on one core.

The server is a simulator without service time on another core. Where that one (or whoever else runs here) is the slower
part, samples per CPU second of the supervisor say what one core could do.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from tests.bench.figure import Figure, at_least, told
from tests.bench.parts import attached, live_run, next_heartbeat, on_core, share_of_core, simulator, use_of, write_word_problems

PROMPTS = 60_000
CONCURRENCY = 150
MEASURED_HEARTBEATS = 20
TARGET_PER_S = 500
ANSWER_TOKENS = 470  # about 2 kB of the simulator's prose


def measure(folder: Path) -> Iterator[Figure]:
    """Samples a second in the steady state."""
    write_word_problems(folder / "problems.jsonl", PROMPTS)
    settings = ["--instant", "--no-thinking", "--mean", str(ANSWER_TOKENS), "--log-sd", "0"]
    with on_core(1):
        server = simulator(folder, *settings)
        url = server.__enter__()
    try:
        dataset = {"name": "problems", "path": "problems.jsonl"}
        generation = {"concurrency": CONCURRENCY, "max_new_tokens": 1000}
        with live_run(folder, [dataset], engine=attached(url), generation=generation, guards={}) as run:
            with on_core(0):
                pid = run.start()
            run.wait_dataset("problems", lambda d: d.finished_samples > 2 * TARGET_PER_S)
            first = next_heartbeat(run)
            before = use_of(pid)
            for _ in range(MEASURED_HEARTBEATS):
                last = next_heartbeat(run)
            after = use_of(pid)
            run.kill_supervisor()
            texts = [len((row.raw_text or "").encode()) for row in run.rows()[-1000:]]
    finally:
        server.__exit__(None, None, None)
    samples = last.status.datasets[0].finished_samples - first.status.datasets[0].finished_samples
    yield at_least("finished samples a second", samples / (last.at - first.at), TARGET_PER_S)
    yield at_least("finished samples a CPU second of the supervisor", samples / (after.cpu_s - before.cpu_s), TARGET_PER_S)
    yield told("the supervisor's share of its core", share_of_core(before, after), "{:.0%}")
    yield told("bytes of text in an answer", sum(texts) / len(texts))
    yield told(f"memory with {CONCURRENCY} in flight, peak (MB)", after.peak_rss_bytes / 1e6)
