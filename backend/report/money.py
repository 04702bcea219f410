"""PURE: US dollars as people read them. None is "unknown": a price that nobody tells is not 0."""

from __future__ import annotations

from decimal import Decimal
from typing import Final

from backend.costs.staying import UsdRange

UNKNOWN: Final = "unknown"
CENTS_BELOW: Final = Decimal(100)
NEARLY: Final = Decimal("0.005")


def usd(amount: Decimal | None) -> str:
    """12.3456 → "$12.35"; from 100 on whole dollars, below a cent two digits that say something."""
    return UNKNOWN if amount is None else f"${_figure(amount)}"


def usd_range(amounts: UsdRange | None) -> str:
    """ "$48–76"; one figure where both ends are nearly the same."""
    if amounts is None:
        return UNKNOWN
    if amounts.p90 - amounts.p10 <= amounts.p50 * NEARLY:
        return usd(amounts.p50)
    low, high = _figure(amounts.p10), _figure(amounts.p90)
    return f"${low}" if low == high else f"${low}–{high}"


def _figure(amount: Decimal) -> str:
    if amount == 0:
        return "0"
    size = abs(amount)
    if size >= CENTS_BELOW - Decimal("0.005"):
        return f"{amount:,.0f}"
    if size >= Decimal("0.995"):
        return f"{amount:,.2f}"
    digits = -size.adjusted() + 1
    short = f"{amount:.{max(digits, 2)}f}"
    return short.rstrip("0") if len(short.partition(".")[2]) > 2 and short.endswith("0") else short
