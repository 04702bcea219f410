"""Headway against SGLang's own load generator, on one real SGLang on a CPU: tokens a second at 16 in flight.

Both ask the same server for the same number of answers of 128 tokens to prompts of random tokens, in pairs whose order
alternates. Tokens a second is output tokens by the seconds from the first request sent to the last answer received.
"""

from __future__ import annotations

import json
import os
import random
import subprocess
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from unittest.mock import patch

from backend.engine_cpu.place import SERVED_NAME, EnginePlace, engine_env, missing_reason
from backend.records import Row
from tests.bench.figure import Figure, SkippedError, at_least, told
from tests.bench.full_slots import share_of_slots
from tests.bench.machine import ROOT
from tests.bench.parts import attached, live_run
from tests.real_engine.real_server import RealServer, start_server

PAIRS = 5
TARGET = 0.97
CONCURRENCY = 16
REQUESTS = 192
PROMPT_TOKENS = 64
ANSWER_TOKENS = 128
FIRST_PLAIN_ID = 300  # of the tiny model's vocabulary: single bytes and special tokens are below
VOCABULARY = 1_000
KEY_VARIABLE = "HEADWAY_BENCH_KEY"


@dataclass(frozen=True, slots=True)
class Pair:
    """Tokens a second of both, and how full Headway kept its slots."""

    ours_per_s: float
    theirs_per_s: float
    share_of_slots: float

    @property
    def ratio(self) -> float:
        """1 where both are as fast."""
        return self.ours_per_s / self.theirs_per_s


def measure(folder: Path) -> Iterator[Figure]:
    """The median of the pairs' ratios."""
    place = EnginePlace(ROOT)
    if reason := missing_reason(place):
        raise SkippedError(reason)
    server = start_server(place, folder)
    try:
        ratios, shares = [], []
        for pair in range(PAIRS):
            made = run_pair(server, folder, pair, REQUESTS)
            ratios.append(made.ratio)
            shares.append(made.share_of_slots)
            what = (
                f"pair {pair + 1}: Headway {made.ours_per_s:,.0f}, sglang.benchmark.serving {made.theirs_per_s:,.0f} tokens/s"
            )
            yield told(what, made.ratio, "{:.3f}")
    finally:
        server.stop()
    yield at_least(f"tokens/s of Headway ÷ the benchmark's, median of {PAIRS} pairs", median(ratios), TARGET, "{:.3f}")
    yield told("Headway's requests with the server ÷ concurrency, median", median(shares), "{:.2%}")


def run_pair(server: RealServer, folder: Path, pair: int, requests: int) -> Pair:
    """Headway and the benchmark, one after the other; who begins alternates from pair to pair."""
    theirs_per_s = benchmark_tokens_per_s(server, folder, pair, requests) if pair % 2 else 0.0
    rows = headway_rows(server, folder, pair, requests)
    if not pair % 2:
        theirs_per_s = benchmark_tokens_per_s(server, folder, pair, requests)
    seconds = max(row.finished_at for row in rows) - min(row.started_at for row in rows)
    return Pair(requests * ANSWER_TOKENS / seconds, theirs_per_s, share_of_slots(rows, CONCURRENCY))


def headway_rows(server: RealServer, folder: Path, seed: int, requests: int) -> list[Row]:
    """What a whole run of Headway, attached to the server, made."""
    place = folder / f"headway-{seed}"
    place.mkdir()
    _write_random_prompts(server, place / "random.jsonl", requests, seed)
    generation = {"concurrency": CONCURRENCY, "max_new_tokens": ANSWER_TOKENS, "extra_body": {"ignore_eos": True}}
    engine = attached(server.url, api_key_env=KEY_VARIABLE)
    # The supervisor's environment is ours: it finds the server's key there.
    with (
        patch.dict(os.environ, {KEY_VARIABLE: server.api_key}),
        live_run(place, [{"name": "random", "path": "random.jsonl"}], engine=engine, generation=generation) as run,
    ):
        run.start()
        run.wait_left(240)
        rows = run.rows()
    assert [row.completion_tokens for row in rows] == [ANSWER_TOKENS] * requests
    return rows


def benchmark_tokens_per_s(server: RealServer, folder: Path, seed: int, requests: int) -> float:
    """SGLang's benchmark, same endpoint, not streamed either."""
    result = folder / f"benchmark-{seed}.jsonl"
    command = [
        str(server.place.python), "-m", "sglang.benchmark.serving", "--backend", "sglang-oai-chat", "--disable-stream",
        "--base-url", server.url, "--model", SERVED_NAME, "--tokenizer", str(server.place.model),
        "--dataset-name", "random-ids", "--num-prompts", str(requests), "--random-input-len", str(PROMPT_TOKENS),
        "--random-output-len", str(ANSWER_TOKENS), "--random-range-ratio", "1.0", "--max-concurrency", str(CONCURRENCY),
        "--request-rate", "inf", "--seed", str(seed + 1), "--disable-tqdm", "--output-file", str(result),
    ]  # fmt: skip
    env = os.environ | engine_env() | {"OPENAI_API_KEY": server.api_key}
    done = subprocess.run(command, env=env, cwd=folder, capture_output=True, text=True, timeout=240, check=False)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    told_of = json.loads(result.read_text().splitlines()[-1])
    assert told_of["total_output_tokens"] == requests * ANSWER_TOKENS, told_of
    return float(told_of["total_output_tokens"] / told_of["duration"])


def _write_random_prompts(server: RealServer, path: Path, count: int, seed: int) -> None:
    """Texts of random token ids, as the benchmark makes them: equal prompts would come from the server's cache."""
    rng = random.Random(seed + 1_000)
    ids = [[rng.randrange(FIRST_PLAIN_ID, VOCABULARY) for _ in range(PROMPT_TOKENS)] for _ in range(count)]
    body = json.dumps({"model": SERVED_NAME, "tokens": ids}).encode()
    headers = {"Authorization": f"Bearer {server.api_key}", "Content-Type": "application/json"}
    with urllib.request.urlopen(urllib.request.Request(f"{server.url}/detokenize", body, headers), timeout=60) as answer:
        texts = json.loads(answer.read())["text"]
    path.write_text("".join(json.dumps({"prompt": text}) + "\n" for text in texts))
