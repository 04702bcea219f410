"""What is shared as a picture of 1600 × 900: the answer, the fan chart, the datasets, as of when. For slides and chats.

Drawn with Pillow, which Streamlit needs anyway: no browser has to be on the machine, and it takes a fraction of a second.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from backend.report.chart_theme import palette
from backend.report.formatting import DASH, plural, share
from backend.report.looks import Tone
from backend.report.share.canvas import Canvas, Style
from backend.report.share.drawing import Anchor
from backend.report.share.fan import fan_picture
from backend.report.share.snapshot import SharedDataset, Snapshot

WIDTH_PX: Final = 1600
HEIGHT_PX: Final = 900
_MARGIN: Final = 56
_INSIDE: Final = 24  # from a panel's edge to what stands in it
_RIGHT: Final = WIDTH_PX - _MARGIN
_TITLE_SIZES: Final = (46, 40, 34, 28)  # the largest that fits on two lines
_ROW_PX: Final = 36
_MOST_ROWS: Final = 5
_TEXT: Final = 20


def png(shared: Snapshot) -> bytes:
    """The file's bytes; always light, as it stands among other people's pages."""
    p = palette(False)
    inks = {Tone.DONE: p.done, Tone.ACTIVE: p.accent, Tone.PAUSED: p.paused, Tone.FAILED: p.failed, Tone.DIM: p.dim}
    canvas, run = Canvas(WIDTH_PX, HEIGHT_PX, p), shared.run
    canvas.words((_MARGIN, 72), f"Headway · {run.name}{' · simulated' if run.simulated else ''}", Style(_TEXT, p.dim))
    canvas.words((_RIGHT, 72), run.look.word, Style(_TEXT, inks[run.look.tone]), Anchor.END)
    line = _title(canvas, shared, 128)
    canvas.words((_MARGIN, line), canvas.cut(run.trouble or run.sentence, Style(22, p.ink), _RIGHT - _MARGIN), Style(22, p.ink))
    rows_px = _ROW_PX * min(len(shared.datasets), _MOST_ROWS) + 24
    bottom = HEIGHT_PX - 76 - rows_px
    _chart(canvas, shared, line + 28, bottom - 20)
    canvas.box((_MARGIN, bottom, _RIGHT, bottom + rows_px), p.panel, p.line, radius=9)
    for i, dataset in enumerate(_few(shared.datasets)):
        y = bottom + 12 + _ROW_PX * i
        if isinstance(dataset, str):
            canvas.words((_MARGIN + _INSIDE, y + 25), dataset, Style(_TEXT, p.dim))
        else:
            _row(canvas, dataset, y, inks[dataset.look.tone])
    told = f"as of {shared.as_of} · {shared.data_age} · {shared.whose}"
    canvas.words((_MARGIN, HEIGHT_PX - 34), canvas.cut(told, Style(18, p.dim), _RIGHT - _MARGIN), Style(18, p.dim))
    return canvas.png()


def _title(canvas: Canvas, shared: Snapshot, y: float) -> float:
    """The answer on one or two lines. Returns where the next line stands."""
    p = canvas.palette
    for size in _TITLE_SIZES:
        styled = [(word, Style(size, p.accent, bold=True)) for word in shared.answer.split()]
        rest = f"{shared.likely}.".split(" ")
        if rest[0]:  # a comma or a full stop stands at the word before
            last, style = styled.pop()
            styled.append((last + rest[0], style))
        styled += [(word, Style(size, p.ink, bold=True)) for word in rest[1:]]
        lines = canvas.flow(styled, _RIGHT - _MARGIN)
        if len(lines) <= 2:
            break
    for line in lines[:2]:
        x = float(_MARGIN)
        for word, style in line:
            x += canvas.words((x, y), canvas.cut(word, style, _RIGHT - x), style) + canvas.width(" ", style)
        y += size * 1.22
    return y - size * 1.22 + 44


def _chart(canvas: Canvas, shared: Snapshot, top: float, bottom: float) -> None:
    p = canvas.palette
    canvas.box((_MARGIN, top, _RIGHT, bottom), p.panel, p.line, radius=9)
    title = Style(_TEXT, p.ink, bold=True)
    if shared.fan is None:
        canvas.words((_MARGIN + _INSIDE, top + 40), "No sample is finished yet", title)
        return
    end = canvas.words((_MARGIN + _INSIDE, top + 40), "Finished tokens over time", title) + _MARGIN + _INSIDE
    scope = "all datasets; the band holds 8 of 10 outcomes" if shared.fan.band else "all datasets together"
    canvas.words((end + 16, top + 40), scope, Style(18, p.dim))
    size = {"width_px": _RIGHT - _MARGIN - 2 * _INSIDE, "height_px": bottom - top - 62, "text_px": 17.0}
    canvas.picture(fan_picture(shared.fan, shared.zone, **size), (_MARGIN + _INSIDE, top + 52))


def _row(canvas: Canvas, d: SharedDataset, y: float, ink: str) -> None:
    p, line = canvas.palette, y + 25
    name, dim = Style(_TEXT, p.ink, bold=True), Style(_TEXT, p.dim)
    canvas.words((_MARGIN + _INSIDE, line), canvas.cut(d.name, name, 240), name)
    canvas.box((340, line - 13, 352, line - 1), ink, ink, radius=6)
    canvas.words((364, line), d.look.word, Style(_TEXT, ink))
    canvas.box((500, line - 11, 640, line - 3), p.line, p.line, radius=4)
    if d.progress:
        canvas.box((500, line - 11, 500 + max(8.0, 140 * d.progress), line - 3), p.accent, p.accent, radius=4)
    canvas.words((710, line), share(d.progress, 1.0), Style(_TEXT, p.ink), Anchor.END)
    end = 736 + canvas.words((736, line), d.done, dim)
    if d.ends != DASH:
        _fitting(canvas, f"ends {d.ends}", line, _RIGHT - _INSIDE - end - 24)


def _fitting(canvas: Canvas, words: str, line: float, width_px: float) -> None:
    """Words at the right of a row, as large as there is room for."""
    styles = [Style(size, canvas.palette.ink) for size in (_TEXT, 18, 16)]
    style = next((style for style in styles if canvas.width(words, style) <= width_px), styles[-1])
    canvas.words((_RIGHT - _INSIDE, line), canvas.cut(words, style, width_px), style, Anchor.END)


def _few(datasets: Sequence[SharedDataset]) -> list[SharedDataset | str]:
    """As many as there is room for; the others are counted."""
    if len(datasets) <= _MOST_ROWS:
        return list(datasets)
    others = datasets[_MOST_ROWS - 1 :]
    done = sum(d.look.tone is Tone.DONE for d in others)
    return [*datasets[: _MOST_ROWS - 1], f"and {plural(len(others), 'dataset')} more, {done} of them done"]
