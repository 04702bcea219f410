"""Draws with Pillow at three times the size, made smaller at the end: lines are smooth, and letters stand where they should."""

from __future__ import annotations

import io
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from itertools import pairwise
from math import hypot
from pathlib import Path
from typing import Final

from PIL import Image, ImageDraw, ImageFont

from backend.report.chart_theme import Palette
from backend.report.formatting import plain
from backend.report.share.drawing import Anchor, Area, Ink, Picture, Point, Stroke, Words

_FINE: Final = 3
_FILL_ALPHA: Final = 33  # of 255: a range's 13 %
_PLACES: Final = {Anchor.START: "ls", Anchor.MIDDLE: "ms", Anchor.END: "rs"}  # Pillow's: left, middle or right of the base line
_FONTS: Final = "static/static/media/SourceSansVF-Upright.*.woff2"  # in Streamlit's package: the one that its pages use
Colour = str | tuple[int, int, int, int]
Box = tuple[float, float, float, float]  # left, top, right, bottom
Font = ImageFont.FreeTypeFont | ImageFont.ImageFont


@dataclass(frozen=True, slots=True)
class Style:
    """How words look. `size` in pixels, `colour` as #rrggbb."""

    size: float
    colour: str
    bold: bool = False


class Canvas:
    """One picture while it is drawn. All sizes are those of the picture in the end."""

    def __init__(self, width_px: int, height_px: int, palette: Palette) -> None:
        self.palette = palette
        self._size = (width_px, height_px)
        self._image = Image.new("RGB", (width_px * _FINE, height_px * _FINE), palette.page)
        self._draw = ImageDraw.Draw(self._image, "RGBA")  # colours with an alpha cover what is below in part

    def box(self, box: Box, fill: str, edge: str, *, radius: float) -> None:
        """A rectangle with round corners."""
        self._draw.rounded_rectangle([v * _FINE for v in box], radius * _FINE, fill, edge, round(_FINE * 1.2))

    def words(self, at: Point, text: str, style: Style, anchor: Anchor = Anchor.START) -> float:
        """Text on its base line at `at`. Returns its width."""
        fine, font = (at[0] * _FINE, at[1] * _FINE), _font(style.size * _FINE, style.bold)
        self._draw.text(fine, plain(text, keep=""), style.colour, font, anchor=_PLACES[anchor])
        return self.width(text, style)

    def width(self, text: str, style: Style) -> float:
        """How many pixels it takes."""
        return float(_font(style.size * _FINE, style.bold).getlength(plain(text, keep=""))) / _FINE

    def cut(self, text: str, style: Style, width_px: float) -> str:
        """As much of it as there is room for, with "…" where that is not all."""
        if self.width(text, style) <= width_px:
            return text
        while text and self.width(f"{text}…", style) > width_px:
            text = text[:-1]
        return f"{text}…"

    def flow(self, words: Sequence[tuple[str, Style]], width_px: float) -> list[list[tuple[str, Style]]]:
        """Words on lines of at most this width; one that is wider stands alone."""
        lines: list[list[tuple[str, Style]]] = [[]]
        taken = 0.0
        for word, style in words:
            wide = self.width(word, style)
            if lines[-1] and taken + wide > width_px:
                lines.append([])
                taken = 0.0
            lines[-1].append((word, style))
            taken += wide + self.width(" ", style)
        return lines

    def picture(self, picture: Picture, at: Point) -> None:
        """A picture, its upper left corner at `at`."""
        for part in picture.parts:
            match part:
                case Words():
                    style = Style(part.size_px, str(self._colour(part.ink)))
                    self.words((part.at[0] + at[0], part.at[1] + at[1]), part.text, style, part.anchor)
                case Area():
                    self._draw.polygon(_moved(part.points, at), fill=self._colour(part.ink))
                case Stroke():
                    self._stroke(_moved(part.points, at), self._colour(part.ink), part.width_px * _FINE, part.dotted)

    def png(self) -> bytes:
        """The file's bytes."""
        image = self._image.resize(self._size, Image.Resampling.BOX)
        file = io.BytesIO()
        image.save(file, "PNG", optimize=True)
        return file.getvalue()

    def _colour(self, ink: Ink) -> Colour:
        if ink is Ink.FILL:
            red, green, blue = (int(self.palette.accent[i : i + 2], 16) for i in (1, 3, 5))
            return red, green, blue, _FILL_ALPHA
        colour: str = getattr(self.palette, ink)
        return colour

    def _stroke(self, points: list[Point], colour: Colour, width: float, dotted: bool) -> None:
        for piece in _dashes(points, width, 3 * width) if dotted else [points]:
            self._draw.line(piece, colour, max(1, round(width)), joint="curve")


@cache
def _font(size: float, bold: bool) -> Font:
    """Source Sans; where Streamlit is not as expected, the one that Pillow brings."""
    spec = find_spec("streamlit")
    for place in (spec.submodule_search_locations or []) if spec is not None else []:
        for path in sorted(Path(place).glob(_FONTS)):
            font = ImageFont.truetype(str(path), size, layout_engine=ImageFont.Layout.BASIC)
            font.set_variation_by_axes([650 if bold else 400])
            return font
    return ImageFont.load_default(size)


def _moved(points: Sequence[Point], by: Point) -> list[Point]:
    return [((x + by[0]) * _FINE, (y + by[1]) * _FINE) for x, y in points]


def _dashes(points: Sequence[Point], on: float, off: float) -> list[list[Point]]:
    """Short pieces along a line."""
    pieces: list[list[Point]] = []
    ahead = 0.0  # until the next piece begins
    for (x0, y0), (x1, y1) in pairwise(points):
        length = hypot(x1 - x0, y1 - y0)
        while ahead < length:
            begin, end = ahead / length, min(1.0, (ahead + on) / length)
            pieces.append([(x0 + (x1 - x0) * t, y0 + (y1 - y0) * t) for t in (begin, end)])
            ahead += on + off
        ahead -= length
    return pieces
