"""PURE: where the words of marks stand on a chart, so that none lies on another and no line runs through one."""

from __future__ import annotations

import html
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from backend.report.formatting import plain

CHARACTER_PX: Final = 6.1  # a mean character at 11 px
GAP_PX: Final = 8.0
MAX_LANES: Final = 3
MAX_CHARACTERS: Final = 44
_LOUDEST_FIRST: Final = {"error": 0, "warning": 1}


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
    on each other. Errors find their place before warnings, those before the rest; of equals the later ones, so that words of
    earlier ones go above them.
    """
    span = until - since
    if span <= 0:
        return []
    placed: list[tuple[float, PlacedMark]] = []
    within = [m for m in marks if since <= m.at <= until]
    for mark in sorted(within, key=lambda m: (_LOUDEST_FIRST.get(m.severity, 2), -m.at)):
        x = (mark.at - since) / span * width_px
        placed.append((x, _place_one(mark, x, placed, width_px, lanes)))
    return [p for _, p in sorted(placed, key=lambda pair: pair[0])]


def label(text: str, limit: int = MAX_CHARACTERS) -> str:
    """Anybody's words as Plotly draws them literally: Plotly reads tags (links, too) and entities."""
    words = plain(" ".join(text.split()), keep="")
    return html.escape(words if len(words) <= limit else f"{words[: limit - 1].rstrip()}…", quote=False)


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
