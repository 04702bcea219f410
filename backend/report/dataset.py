"""One dataset in depth: how long its answers are so far, how fast they come, how they ended and what they are worth."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

from backend.config import RunConfig
from backend.report.database import run_query
from backend.report.formatting import plain
from backend.run_dir import RunDir

BINS_PER_OCTAVE: Final = 4  # each bin is 19 % wider than the one before
EARLY_SHARE: Final = 0.25  # of the finished: with more than this in flight, the finished ones are the short ones
ERRORS_SHOWN: Final = 20
STEPS_S: Final = (60, 300, 900, 3600, 6 * 3600, 86400)
MAX_STEPS: Final = 240
HOUR_S: Final = 3600


@dataclass(frozen=True, slots=True)
class Totals:
    """Samples that count, rejected ones among `samples` only. Times are epoch seconds; None without any."""

    samples: int
    answered: int
    capped: int  # ended by the cap on new tokens
    completion_tokens: int | None
    prompt_tokens: int | None
    reasoning_tokens: int | None
    mean_tokens: float | None
    longest_tokens: int | None
    first_finished_at: float | None
    last_finished_at: float | None


@dataclass(frozen=True, slots=True)
class Lengths:
    """How many answers are about so long: `counts[i]` lie between `edges_tokens[i]` and the next edge."""

    edges_tokens: tuple[float, ...]  # log-spaced, one more than counts; empty without answers
    counts: tuple[int, ...]
    p10_tokens: float | None
    p50_tokens: float | None
    p90_tokens: float | None


@dataclass(frozen=True, slots=True)
class Share:
    """How many samples share a name (an outcome, a finish reason), and their tokens."""

    name: str
    samples: int
    completion_tokens: int


@dataclass(frozen=True, slots=True)
class Refusal:
    """Samples that the server refused for about the same reason. Times are epoch seconds."""

    words: str  # the server's, of the newest one; control characters escaped
    samples: int
    first_at: float
    last_at: float


@dataclass(frozen=True, slots=True)
class Pace:
    """What finished in each span of `step_s`: `at[i]` is where a span begins (epoch seconds)."""

    step_s: int
    at: tuple[float, ...]
    tokens_per_hour: tuple[float, ...]


def read_totals(run: RunDir, dataset: str) -> Totals:
    """The figures of all samples that count. Raises RunDirError, as all here."""
    (row,) = run_query(run, "dataset_totals", dataset=dataset)
    return Totals(**row)


def read_lengths(run: RunDir, dataset: str) -> Lengths:
    """Lengths of the answers in completion tokens, in bins that grow with the length."""
    rows = run_query(run, "length_histogram", dataset=dataset, per_octave=BINS_PER_OCTAVE)
    (quantiles,) = run_query(run, "length_quantiles", dataset=dataset)
    marks = (quantiles["p10"], quantiles["p50"], quantiles["p90"])
    if not rows:
        return Lengths((), (), *marks)
    counts = {row["bin"]: row["answers"] for row in rows}
    first, last = min(counts), max(counts)
    edges = tuple(edge_tokens(k) for k in range(first, last + 2))
    return Lengths(edges, tuple(counts.get(k, 0) for k in range(first, last + 1)), *marks)


def edge_tokens(k: int) -> float:
    """Where bin `k` begins."""
    return float(2 ** (k / BINS_PER_OCTAVE) - 1)


def read_finish_reasons(run: RunDir, dataset: str) -> list[Share]:
    """How the samples ended, each reason that occurred."""
    return [Share(**row) for row in run_query(run, "finish_reasons", dataset=dataset)]


def read_refusals(run: RunDir, dataset: str) -> list[Refusal]:
    """Why the server refused samples, the most frequent reason first, at most ERRORS_SHOWN."""
    rows = run_query(run, "errors", dataset=dataset, limit=ERRORS_SHOWN)
    return [Refusal(**{**row, "words": plain(row["words"])}) for row in rows]


def read_pace(run: RunDir, dataset: str, totals: Totals, now: float) -> Pace:
    """Tokens an hour by when they finished; 0 where none did. The last span is left out until it is over."""
    first, last = totals.first_finished_at, totals.last_finished_at
    if first is None or last is None:
        return Pace(STEPS_S[0], (), ())
    step_s = next((s for s in STEPS_S if (last - first) / s <= MAX_STEPS), STEPS_S[-1])
    rows = {row["began_at"]: row for row in run_query(run, "pace", dataset=dataset, step_s=step_s)}
    begin = math.floor(first / step_s) * step_s
    at = [float(begin + i * step_s) for i in range(int((last - begin) // step_s) + 1) if begin + (i + 1) * step_s <= now]
    tokens = tuple((rows[moment]["completion_tokens"] if moment in rows else 0) * HOUR_S / step_s for moment in at)
    return Pace(step_s, tuple(at), tokens)


def is_early(totals: Totals, in_flight: int | None) -> bool:
    """Whether so many requests are in flight that the finished ones, which are the short ones, say little of the length."""
    return bool(in_flight) and (in_flight or 0) > EARLY_SHARE * totals.answered


def cap_tokens(settings: RunConfig, dataset: str) -> int | None:
    """The most tokens one answer may have; None where the server's own limit holds."""
    return settings.sampling_for(settings.dataset(dataset)).max_new_tokens
