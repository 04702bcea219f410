"""How finished samples are distributed, over datasets and over time: lengths, outcomes, drift."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import Final

from backend.records import Outcome
from backend.report.database import run_query
from backend.report.dataset import BINS_PER_OCTAVE, STEPS_S, edge_tokens
from backend.run_dir import RunDir

MOST_SPANS: Final = 60  # of time in one chart: wide enough to tell a share


@dataclass(frozen=True, slots=True)
class LengthsOf:
    """One dataset's lengths: `shares[i]` of its answers lie between `edges_tokens[i]` and the next edge."""

    dataset: str
    answers: int
    edges_tokens: tuple[float, ...]
    shares: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class Spans:
    """What finished in each span of `step_s` seconds that begins at `at[i]`; spans in which nothing finished are left out."""

    step_s: int
    at: tuple[float, ...]
    samples: tuple[int, ...]
    p10_tokens: tuple[float | None, ...]
    p50_tokens: tuple[float | None, ...]
    p90_tokens: tuple[float | None, ...]
    shares: dict[Outcome, tuple[float, ...]]  # of each outcome that occurred, 0..1


def read_lengths_by_dataset(run: RunDir, datasets: list[str]) -> list[LengthsOf]:
    """Lengths of answers of each dataset that has any, in the order of `datasets`. Raises RunDirError, as all here."""
    rows = run_query(run, "length_bins", per_octave=BINS_PER_OCTAVE)
    counts: dict[str, dict[int, int]] = defaultdict(dict)
    for row in rows:
        counts[row["dataset"]][row["bin"]] = row["answers"]
    return [_lengths_of(name, counts[name]) for name in datasets if name in counts]


def read_spans(run: RunDir, dataset: str | None) -> Spans:
    """Lengths and outcomes over time, of one dataset or of all."""
    (times,) = run_query(run, "time_range", dataset=dataset)
    first, last = times["first_finished_at"], times["last_finished_at"]
    if first is None or last is None:
        return Spans(STEPS_S[0], (), (), (), (), (), {})
    step_s = next((s for s in STEPS_S if (last - first) / s <= MOST_SPANS), STEPS_S[-1])
    drift = run_query(run, "drift", dataset=dataset, step_s=step_s)
    outcomes = run_query(run, "outcomes_over_time", dataset=dataset, step_s=step_s)
    counts = {(row["began_at"], row["outcome"]): row["samples"] for row in outcomes}
    present = [outcome for outcome in Outcome if any(outcome == name for _, name in counts)]
    return Spans(
        step_s,
        tuple(row["began_at"] for row in drift),
        tuple(row["samples"] for row in drift),
        tuple(row["p10_tokens"] for row in drift),
        tuple(row["p50_tokens"] for row in drift),
        tuple(row["p90_tokens"] for row in drift),
        {o: tuple(counts.get((row["began_at"], o.value), 0) / row["samples"] for row in drift) for o in present},
    )


def _lengths_of(dataset: str, counts: dict[int, int]) -> LengthsOf:
    first, last, answers = min(counts), max(counts), sum(counts.values())
    edges = tuple(edge_tokens(k) for k in range(first, last + 2))
    return LengthsOf(dataset, answers, edges, tuple(counts.get(k, 0) / answers for k in range(first, last + 1)))
