"""PURE: a picture as inline SVG. Its colours are classes that the page around it names: light or dark as the page is."""

from __future__ import annotations

from collections.abc import Iterable
from html import escape

from backend.report.formatting import plain
from backend.report.share.drawing import Area, Part, Picture, Point, Stroke, Words


def svg(picture: Picture, css_class: str) -> str:
    """The element, as wide as its place and of its own proportions."""
    parts = "".join(map(_part, picture.parts))
    size = f"0 0 {picture.width_px:g} {picture.height_px:g}"
    return f'<svg class="{escape(css_class)}" viewBox="{size}" role="img" aria-label="{text(picture.told)}">{parts}</svg>'


def text(words: str) -> str:
    """Anybody's text for HTML and SVG: tags are text, what would not be seen is spelled out."""
    return escape(plain(words))


def _part(part: Part) -> str:
    match part:
        case Stroke():
            dash = f' stroke-dasharray="{part.width_px:g} {3 * part.width_px:g}"' if part.dotted else ""
            return f'<path class="s-{part.ink}" stroke-width="{part.width_px:.3g}"{dash} d="M{_points(part.points)}"/>'
        case Area():
            return f'<path class="f-{part.ink}" d="M{_points(part.points)}Z"/>'
        case Words():
            x, y = part.at
            place = f'x="{x:.1f}" y="{y:.1f}" font-size="{part.size_px:g}" text-anchor="{part.anchor}"'
            return f'<text class="f-{part.ink}" {place}>{text(part.text)}</text>'


def _points(points: Iterable[Point]) -> str:
    return " ".join(f"{x:.1f} {y:.1f}" for x, y in points)
