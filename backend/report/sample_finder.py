"""Finds samples by what somebody wants to see: a dataset, an outcome, a source, flagged ones, words in the text, an order."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

from backend.records import Outcome
from backend.report.database import run_query
from backend.report.long_question import LongQuestion, Result
from backend.report.samples import SampleLine
from backend.run_dir import RunDir

MOST: Final = 500  # that are found at once: nobody reads more one by one


class Order(StrEnum):
    """Which sample comes first."""

    NEWEST = "newest"
    OLDEST = "oldest"
    LONGEST = "longest"
    SHORTEST = "shortest"


@dataclass(frozen=True, slots=True)
class Wanted:
    """What is looked for. None and "" let everything through."""

    dataset: str | None = None
    outcome: Outcome | None = None
    source: str | None = None
    flagged: bool = False
    text: str = ""
    order: Order = Order.NEWEST


def find(run: RunDir, wanted: Wanted, *, limit: int = MOST) -> list[SampleLine]:
    """Samples by their counts and flags, `text` aside; at once. Raises RunDirError."""
    name = "flagged_samples" if wanted.flagged else "found_samples"
    return lines_of(run_query(run, name, **_parameters(wanted, limit)))


def begin_search(run: RunDir, wanted: Wanted, *, limit: int = MOST) -> LongQuestion:
    """A search through the texts on its way; flags play no part in it. Raises RunDirError."""
    return LongQuestion(run, name="search_texts", parameters={"text": wanted.text, **_parameters(wanted, limit)})


def found_by(result: Result) -> list[SampleLine]:
    """What a search has found."""
    return lines_of(result.table.to_pylist())


def sources(run: RunDir) -> list[str]:
    """Where the samples come from, the most frequent source first. Raises RunDirError."""
    return [str(row["name"]) for row in run_query(run, "sources", dataset=None)]


def lines_of(rows: Iterable[Mapping[str, Any]]) -> list[SampleLine]:
    """Rows of a query as samples without their texts."""
    return [SampleLine(**{**row, "outcome": Outcome(row["outcome"])}) for row in rows]


def _parameters(wanted: Wanted, limit: int) -> dict[str, Any]:
    outcome = None if wanted.outcome is None else wanted.outcome.value
    return {
        "dataset": wanted.dataset,
        "outcome": outcome,
        "source": wanted.source,
        "order": wanted.order.value,
        "limit": limit,
    }
