"""What it takes to see what is in a finished text, and to judge its dataset by it: CPU time, on one thread."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from backend.config import GuardsConfig
from backend.job.dataset_guard import DatasetGuard
from backend.outcomes import facts
from backend.records import Facts, Prompt
from tests.bench.figure import Figure, at_most
from tests.sample_rows import make_row

TOKENS = 32_000
LOOKS = 9
SAMPLES, IN_FLIGHT = 20_000, 150
WORDS = [
    "the",
    "ferry",
    "left",
    "at",
    "nine",
    "and",
    "by",
    "ten",
    "island",
    "was",
    "a",
    "grey",
    "line",
    "behind",
    "us",
    "nobody",
    "spoke",
    "much",
    "gulls",
    "followed",
    "for",
    "while",
]


def measure(_folder: Path) -> Iterator[Figure]:
    """Facts of long texts, and one sample through its dataset's guard."""
    rng = random.Random(1)
    text = " ".join(rng.choices(WORDS, k=22_000))
    plain, loop = tuple(rng.choices(range(150_000), k=TOKENS)), tuple(rng.choices(range(150_000), k=100)) * (TOKENS // 100)
    for what, ids in (("", plain), (", all of it a loop", loop), (", without token ids", None)):
        yield at_most(f"facts of {TOKENS:,} tokens{what} (ms)", _middle_ms(lambda ids=ids: _see(text, ids)), 10, "{:.1f}")
    yield at_most("judging one sample, one in seven of them bad (µs)", _judge_us(rng), 100)


def _see(text: str, ids: tuple[int, ...] | None) -> Facts:
    return facts(
        raw_text=text,
        reasoning=None,
        answer=text,
        tool_calls=None,
        output_ids=ids,
        completion_tokens=TOKENS,
        reasoning_tokens=None,
    )


def _middle_ms(act: Callable[[], object]) -> float:
    took = []
    for _ in range(LOOKS):
        began = time.thread_time()
        act()
        took.append(time.thread_time() - began)
    return sorted(took)[LOOKS // 2] * 1e3


def _judge_us(rng: random.Random) -> float:
    guard = DatasetGuard(GuardsConfig(), (), intents=lambda: 0)
    prompts = [Prompt("B", i, f"s{i}", ()) for i in range(SAMPLES)]
    bad, good = Facts(answer_tokens=0), (Facts(answer_tokens=470, simhash=rng.getrandbits(63)) for _ in range(SAMPLES))
    rows = [make_row(i, facts=bad if rng.random() < 1 / 7 else next(good)) for i in range(SAMPLES)]
    running: list[int] = []
    began = time.thread_time()
    for i in range(SAMPLES):
        guard.started(prompts[i])
        running.append(i)
        if len(running) > IN_FLIGHT:
            done = running.pop(rng.randrange(IN_FLIGHT))
            guard.finished(prompts[done], rows[done])
    assert guard.hold is None
    return (time.thread_time() - began) / SAMPLES * 1e6
