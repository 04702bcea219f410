"""How often each outcome occurs in a dataset: over all of it and lately, with what chance alone may have made of it."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

from backend.outcomes import NearDuplicates
from backend.outcomes.similarity import NEAR_WINDOW
from backend.report.database import run_query
from backend.report.outcome_words import REPEATS
from backend.run_dir import RunDir

LATELY: Final = 1_000  # samples
Z: Final = 1.959963984540054  # of a two-sided 95 % interval


@dataclass(frozen=True, slots=True)
class Rate:
    """So many of so many, and the shares (0..1) that are compatible with it."""

    hits: int
    of: int
    low: float
    high: float

    @property
    def share(self) -> float:
        """0..1."""
        return self.hits / self.of


@dataclass(frozen=True, slots=True)
class OutcomeRate:
    """One outcome (or REPEATS) of a dataset; None where nothing is known."""

    name: str
    completion_tokens: int | None
    overall: Rate | None
    lately: Rate | None  # of the LATELY samples that finished last


def read_rates(run: RunDir, dataset: str) -> list[OutcomeRate]:
    """Each outcome that occurred, the most frequent first, then answers that repeat others. Raises RunDirError."""
    overall = {row["name"]: row for row in run_query(run, "outcomes", dataset=dataset)}
    lately = {row["name"]: row["samples"] for row in run_query(run, "recent_outcomes", dataset=dataset, limit=LATELY)}
    total, recent = sum(row["samples"] for row in overall.values()), sum(lately.values())
    rates = [
        OutcomeRate(
            name, row["completion_tokens"], wilson(row["samples"], total), wilson(lately.get(name, 0), recent)
        )
        for name, row in overall.items()
    ]  # fmt: skip
    repeats = _read_repeats(run, dataset)
    return [*rates, OutcomeRate(REPEATS, None, None, repeats)] if repeats.hits else rates


def wilson(hits: int, of: int) -> Rate:
    """A share with its 95 % interval (Wilson, 1927), which also holds for few samples and for shares near 0 and 1.

    Raises ZeroDivisionError where there are no samples.
    """
    share, spread = hits / of, Z * Z / of
    middle = (share + spread / 2) / (1 + spread)
    half = Z / (1 + spread) * math.sqrt(share * (1 - share) / of + spread / (4 * of))
    return Rate(hits, of, 0.0 if hits == 0 else max(0.0, middle - half), 1.0 if hits == of else min(1.0, middle + half))


def _read_repeats(run: RunDir, dataset: str) -> Rate:
    index = NearDuplicates()
    rows = run_query(run, "recent_hashes", dataset=dataset, limit=NEAR_WINDOW)
    return wilson(sum(index.add(row["simhash"], row["answer_tokens"]) for row in rows), max(1, len(rows)))
