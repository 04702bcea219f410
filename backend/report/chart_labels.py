"""PURE: where the words of marks stand on a chart, so that none lies on another and no line runs through one."""

from __future__ import annotations

import html
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

from backend.report.formatting import plain

CHARACTER_PX: Final = 6.1  # a mean character at 11 px
GAP_PX: Final = 8.0
MAX_LANES: Final = 3
NARROW_PX: Final = 280.0  # a plot on a telephone, 390 px wide
MAX_CHARACTERS: Final = 44


@dataclass(frozen=True, slots=True)
class Mark:
    """Something that happened at a place of the x axis, in words. The words may be anybody's."""

    at: float
    words: str
    severity: str = "info"


@dataclass(frozen=True, slots=True)
class PlacedMark:
    """A mark and where its words stand: lane 0 is next to the plot. `lane` None: only the line is drawn, words on hover."""

    mark: Mark
    lane: int | None
    leftwards: bool = False  # the words stand to the left of the line
    left_px: float = 0.0
    right_px: float = 0.0


def place(marks: Sequence[Mark], since: float, until: float, *, width_px: float, lanes: int = MAX_LANES) -> list[PlacedMark]:
    """The marks within [since, until] in order of time, on a plot that is `width_px` wide.

    A mark's line reaches from the plot up to the lane of its words; it may not run through other words, nor may they lie
    on each other. Later marks are placed first, words of earlier ones go above them; only where an error or a warning would
    then stay without words, these are placed before all others.
    """
    span = until - since
    if span <= 0:
        return []
    within = sorted((m for m in marks if since <= m.at <= until), key=lambda m: -m.at)
    plans = []
    for order in (within, sorted(within, key=_loudest_first)):
        placed: list[tuple[float, PlacedMark]] = []
        for mark in order:
            x = (mark.at - since) / span * width_px
            placed.append((x, _place_one(mark, x, placed, width_px, lanes)))
        plans.append([p for _, p in sorted(placed, key=lambda pair: pair[0])])
    return max(plans, key=_told)


def too_narrow_for(placed: Sequence[PlacedMark], since: float, until: float, *, width_px: float = NARROW_PX) -> list[int]:
    """Which words, counted among those that have a lane, have no place where the plot is only `width_px` wide.

    Lanes and sides stay as they are placed; errors and warnings keep their words before others, later marks before earlier.
    """
    told = [mark for mark in placed if mark.lane is not None]
    at = [(mark.mark.at - since) / (until - since) * width_px for mark in told]
    kept: list[int] = []
    for i in sorted(range(len(told)), key=lambda i: (_loudest_first(told[i].mark), -at[i])):
        x, width = at[i], told[i].right_px - told[i].left_px
        left, right = (x - width, x) if told[i].leftwards else (x, x + width)
        if left < 0 or right > width_px:
            continue
        if _is_free(x, left, right, told[i].lane or 0, [(at[j], _moved(told[j], at[j])) for j in kept]):
            kept.append(i)
    return [i for i in range(len(told)) if i not in kept]


def _moved(mark: PlacedMark, x: float) -> PlacedMark:
    width = mark.right_px - mark.left_px
    left = x - width if mark.leftwards else x
    return replace(mark, left_px=left, right_px=left + width)


def label(text: str, limit: int = MAX_CHARACTERS) -> str:
    """Anybody's words as Plotly draws them literally: Plotly reads tags (links, too) and entities."""
    words = plain(" ".join(text.split()), keep="")
    return html.escape(words if len(words) <= limit else f"{words[: limit - 1].rstrip()}…", quote=False)


def _loudest_first(mark: Mark) -> int:
    return {"error": 0, "warning": 1}.get(mark.severity, 2)


def _told(plan: Sequence[PlacedMark]) -> tuple[int, int]:
    """How many loud marks have their words, then how many at all."""
    told = [p.mark for p in plan if p.lane is not None]
    return sum(_loudest_first(mark) < 2 for mark in told), len(told)


def _place_one(mark: Mark, x: float, others: Sequence[tuple[float, PlacedMark]], width_px: float, lanes: int) -> PlacedMark:
    width = min(len(mark.words), MAX_CHARACTERS) * CHARACTER_PX + GAP_PX
    for lane in range(lanes):
        for leftwards in (False, True):
            left, right = (x - width, x) if leftwards else (x, x + width)
            if left < 0 or right > width_px:
                continue
            if _is_free(x, left, right, lane, others):
                return PlacedMark(mark, lane, leftwards, left, right)
    return PlacedMark(mark, None)


def _is_free(x: float, left: float, right: float, lane: int, others: Sequence[tuple[float, PlacedMark]]) -> bool:
    for other_x, other in others:
        if other.lane is None:
            continue
        if other.lane == lane and left < other.right_px and other.left_px < right:
            return False  # words on words
        if other.lane <= lane and other.left_px < x < other.right_px:
            return False  # my line through its words
        if other.lane >= lane and left < other_x < right:
            return False  # its line through my words
    return True
