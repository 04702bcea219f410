"""PURE: figures, durations and tables as people read them. None is shown as "–"."""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Final

DASH: Final = "–"
_UNSEEN: Final = frozenset({"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"})
_FORMULA: Final = ("=", "+", "-", "@", "\t", "\r")  # what a spreadsheet would run
_SCALES: Final = ((1e12, "T"), (1e9, "B"), (1e6, "M"), (1e3, "k"))


def number(value: float | None, decimals: int = 0) -> str:
    """1234567 → "1,234,567"."""
    return DASH if value is None else f"{value:,.{decimals}f}"


def compact(value: float | None) -> str:
    """1234567 → "1.23M": three digits are enough to compare by."""
    if value is None:
        return DASH
    for scale, letter in _SCALES:
        if abs(value) >= scale * 0.9995:
            return f"{_three_digits(value / scale)}{letter}"
    return f"{value:.0f}"


def size(count_bytes: float | None) -> str:
    """1234567 → "1.23 MB", in powers of 1000 as disks are sold."""
    if count_bytes is None:
        return DASH
    shown = compact(count_bytes)
    unit = {"k": "kB", "M": "MB", "B": "GB", "T": "TB"}.get(shown[-1])
    return f"{shown} B" if unit is None else f"{shown[:-1]} {unit}"


def share(part: float | None, whole: float | None) -> str:
    """3 of 4 → "75%"; what is not quite all is never "100%"."""
    if part is None or not whole:
        return DASH
    percent = 100 * part / whole
    if 99 < percent < 100:
        return f"{int(percent * 10) / 10:.1f}%".replace("99.0%", "99%")
    return f"{percent:.0f}%" if percent >= 1 or percent == 0 else f"{percent:.1f}%"


def duration(seconds: float | None) -> str:
    """3725 → "1 h 02 min"; two units at most."""
    if seconds is None:
        return DASH
    if seconds < 0:
        return f"-{duration(-seconds)}"
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    minutes, s = divmod(whole, 60)
    if minutes < 60:
        return f"{minutes} min {s:02d} s"
    hours, m = divmod(minutes, 60)
    if hours < 24:
        return f"{hours} h {m:02d} min"
    days, h = divmod(hours, 24)
    return f"{days} d {h:02d} h"


def moment(at: float | None) -> str:
    """Epoch seconds → "2026-03-01 14:05:09 UTC"."""
    return DASH if at is None else datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")


def plural(count: int, noun: str, many: str | None = None) -> str:
    """(1, "sample") → "1 sample"; (1200, "sample") → "1,200 samples"; `many` where an "s" is not enough."""
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {many or noun + 's'}"


def plain(text: str, *, keep: str = "\n") -> str:
    """Text that a terminal shows and never obeys: control, format and unassigned characters but those of `keep` are escaped."""
    if text.isascii() and text.isprintable():
        return text
    return "".join(c if c in keep or unicodedata.category(c) not in _UNSEEN else _escaped(c) for c in text)


def csv_cell(text: str) -> str:
    """Anybody's text for a cell of a CSV file: control characters are escaped, and no spreadsheet takes it for a formula."""
    shown = plain(text)
    return f"'{shown}" if shown.startswith(_FORMULA) else shown


def table(head: Sequence[str], rows: Sequence[Sequence[str]], *, left: int = 1) -> str:
    """Columns aligned by spaces: the first `left` to the left, the others to the right."""
    shown = [[plain(cell, keep="") for cell in row] for row in (head, *rows)]
    widths = [max(len(row[i]) for row in shown) for i in range(len(head))]
    lines = []
    for row in shown:
        cells = (c.ljust(w) if i < left else c.rjust(w) for i, (c, w) in enumerate(zip(row, widths, strict=True)))
        lines.append("  ".join(cells).rstrip())
    return "\n".join(lines)


def _three_digits(value: float) -> str:
    decimals = 2 if abs(value) < 9.995 else 1 if abs(value) < 99.95 else 0
    return f"{value:.{decimals}f}"


def _escaped(character: str) -> str:
    return character.encode("unicode_escape", "surrogatepass").decode("ascii")
