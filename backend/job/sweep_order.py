"""PURE: what a wish for a sweep holds, checked: levels to measure here, or levels that another program has measured."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from backend.config import MAX_CONCURRENCY
from backend.records import Json
from backend.sweeps import SweepLevel

MOST_LEVELS: Final = 24
LEVEL_LIMIT_S: Final = 120.0
LARGEST: Final = 1e15


@dataclass(frozen=True, slots=True)
class SweepOrder:
    """Levels to measure, ascending."""

    levels: tuple[int, ...]
    level_limit_s: float = LEVEL_LIMIT_S
    drain: bool = True  # on the way down to the first level requests in flight finish


@dataclass(frozen=True, slots=True)
class ImportedSweep:
    """Levels that were measured elsewhere."""

    source: str  # the file's name
    replicas: int  # that were measured together
    levels: tuple[SweepLevel, ...]


def read_order(value: Json) -> SweepOrder:
    """The order in an intent's value {"levels", "level_limit_s", "drain"}. Raises ValueError with a sentence."""
    levels, limit_s = value.get("levels"), value.get("level_limit_s", LEVEL_LIMIT_S)
    if not isinstance(levels, list | tuple) or not levels:
        raise ValueError(f"sweep: {levels!r} is no list of levels, such as [1, 4, 8, 16].")
    _check_levels(levels)
    if not _is_number(limit_s) or not 1 <= limit_s <= 86_400:
        raise ValueError(f"sweep: a level's time {limit_s!r} is no number of seconds from 1 to 86400.")
    return SweepOrder(tuple(levels), float(limit_s), bool(value.get("drain", True)))


def read_imported(value: Json) -> ImportedSweep:
    """The levels in an intent's value {"measured", "source", "replicas"}. Raises ValueError with a sentence."""
    measured, replicas = value.get("measured"), value.get("replicas", 1)
    if not isinstance(measured, list) or not measured or not all(isinstance(one, dict) for one in measured):
        raise ValueError("sweep: what was measured is no list of levels.")
    if not is_count(replicas):
        raise ValueError(f"sweep: {replicas!r} is no number of replicas.")
    _check_levels([one.get("concurrency") for one in measured])
    levels = []
    for one in measured:
        speed, first = one.get("tokens_per_s"), one.get("first_token_s")
        if not _is_number(speed) or speed <= 0:
            raise ValueError(f"sweep: {speed!r} tokens/s at {one['concurrency']} requests is no number above 0.")
        first_s = float(first) if _is_number(first) else None
        levels.append(SweepLevel(concurrency=one["concurrency"], tokens_per_s=float(speed), first_token_s=first_s))
    return ImportedSweep(str(value.get("source") or "a file"), replicas, tuple(levels))


def _check_levels(levels: Any) -> None:
    for level in levels:
        if not is_count(level):
            raise ValueError(f"sweep: the level {level!r} is not a whole number of at least 1.")
        if level > MAX_CONCURRENCY:
            raise ValueError(f"sweep: a level is at most {MAX_CONCURRENCY:,} requests.")
    if list(levels) != sorted(set(levels)):
        raise ValueError(f"sweep: the levels {', '.join(map(str, levels))} must ascend, each named once.")
    if len(levels) > MOST_LEVELS:
        raise ValueError(f"sweep: {len(levels)} levels are more than {MOST_LEVELS}; leave some out.")


def is_count(value: Any) -> bool:
    """Whether it is a whole number of at least 1."""
    return isinstance(value, int) and not isinstance(value, bool) and value >= 1


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < LARGEST
