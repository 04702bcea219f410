"""PURE: the statements of telemetry's tables, made from the dataclasses of `telemetry.py`: a new field needs nothing here.

What a row of a finer resolution becomes in a coarser one is told by its field's `RollUp`. `telemetry_store.py` runs them.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import fields
from functools import cache
from typing import Any

from backend.telemetry import TABLES, RollUp


@cache
def columns_of(table: str) -> dict[str, Any]:
    """The stored fields of a table with their metadata (`type`, `roll_up`). Raises KeyError for an unknown table."""
    return {f.name: f.metadata for f in fields(TABLES[table]) if f.metadata}


@cache
def insert_statement(table: str) -> str:
    """Stores one row: resolution, key, time, number of samples, then the fields."""
    columns = columns_of(table)
    marks = ", ".join("?" * (4 + len(columns)))
    return f"INSERT OR REPLACE INTO {table} (resolution_s, key, at, samples, {quoted(columns)}) VALUES ({marks})"


@cache
def roll_up_statement(table: str) -> str:
    """Makes coarser rows of finer ones: `:from` (their resolution), `:key`, `:since`, `:until`, `:step`."""
    columns = tuple(columns_of(table))
    return (
        f"INSERT OR REPLACE INTO {table} (resolution_s, key, at, samples, {quoted(columns)})"
        f" SELECT :step, :key, at / :step * :step, {_aggregates(table, columns)} GROUP BY at / :step"
    )


@cache
def read_statement(table: str, names: tuple[str, ...]) -> str:
    """Reads points of `:step` seconds from rows of one resolution; bound as a roll-up is."""
    return f"SELECT MIN(at), {_aggregates(table, names)} GROUP BY at / :step ORDER BY at / :step"


def _aggregates(table: str, names: tuple[str, ...]) -> str:
    """`SUM(samples)` and a roll-up for each name, with the FROM and WHERE they belong to."""
    columns = columns_of(table)
    parts = ["SUM(samples)"]
    for name in names:
        match RollUp(columns[name]["roll_up"]):
            case RollUp.MEAN:
                parts.append(f'SUM("{name}" * samples) / SUM(CASE WHEN "{name}" IS NOT NULL THEN samples END)')
            case RollUp.MAX:
                parts.append(f'MAX("{name}")')
            case RollUp.UNION:
                parts.append(f'words_union("{name}")')
            case RollUp.LAST:
                # One lower and one upper bound: with two of a kind SQLite searches from the wrong one.
                parts.append(
                    f'(SELECT "{name}" FROM {table} WHERE resolution_s = :from AND key = :key'
                    f" AND at >= MAX(:since, o.at / :step * :step) AND at < MIN(:until, (o.at / :step + 1) * :step)"
                    f' AND "{name}" IS NOT NULL ORDER BY at DESC LIMIT 1)'
                )
    within = "resolution_s = :from AND key = :key AND at >= :since AND at < :until"
    return f"{', '.join(parts)} FROM {table} AS o WHERE {within}"


def quoted(names: Iterable[str]) -> str:
    """Names of columns, for a statement."""
    return ", ".join(f'"{name}"' for name in names)


class WordsUnion:
    """SQLite aggregate: the words of comma-separated texts, each once, sorted; NULL where every text is NULL."""

    def __init__(self) -> None:
        self.words: set[str] | None = None

    def step(self, text: str | None) -> None:
        """One row."""
        if text is not None:
            self.words = (self.words or set()) | {word for word in text.split(",") if word}

    def finalize(self) -> str | None:
        """What stands in the coarser row."""
        return None if self.words is None else ",".join(sorted(self.words))
