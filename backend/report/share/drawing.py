"""PURE: a picture as lines, areas and words at places in pixels, so that SVG and PNG show the same. Colours go by meaning."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

Point = tuple[float, float]  # x to the right, y downwards


class Ink(StrEnum):
    """What something is drawn in."""

    INK = "ink"
    DIM = "dim"
    GRID = "grid"
    LINE = "line"
    ACCENT = "accent"
    FILL = "fill"  # the accent, faint: a range


class Anchor(StrEnum):
    """Which end of words lies at their place."""

    START = "start"
    MIDDLE = "middle"
    END = "end"


@dataclass(frozen=True, slots=True)
class Stroke:
    """A line through points."""

    points: tuple[Point, ...]
    ink: Ink
    width_px: float
    dotted: bool = False


@dataclass(frozen=True, slots=True)
class Area:
    """What lies within points."""

    points: tuple[Point, ...]
    ink: Ink


@dataclass(frozen=True, slots=True)
class Words:
    """Text; `at` is on its base line."""

    at: Point
    text: str
    ink: Ink
    size_px: float
    anchor: Anchor = Anchor.START


Part = Stroke | Area | Words


@dataclass(frozen=True, slots=True)
class Picture:
    """All of it, in the order in which it is drawn. `told` says in a sentence what is to be seen."""

    width_px: float
    height_px: float
    told: str
    parts: tuple[Part, ...]
