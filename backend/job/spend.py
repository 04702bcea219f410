"""Money of one API, kept below its cap by reservation: what is spent and what is in flight at its worst never pass the cap.

Pure bookkeeping, no clock. Sums are whole trillionths of a dollar, so that a million additions lose nothing; reservations are
rounded up. What a request costs at worst is `api_bill.py`'s to say, when to try again `api_route.py`'s.
"""

from __future__ import annotations

import math
from collections.abc import Hashable
from dataclasses import dataclass
from typing import Final

UNITS_PER_USD: Final = 10**12


@dataclass(frozen=True, slots=True)
class SpendView:
    """The account at one moment, in USD."""

    spent_usd: float  # finished samples, and failed attempts as far as their bill is known
    unsure_usd: float  # what attempts whose bill never came may have cost beyond that
    reserved_usd: float  # what is in flight costs at worst
    cap_usd: float | None


class Spend:
    """The account of one API, or of one probe within it."""

    def __init__(self, cap_usd: float | None, *, spent_usd: float = 0.0, unsure_usd: float = 0.0) -> None:
        """`spent_usd` and `unsure_usd` are of former lives. No cap: everything is allowed, and counted."""
        self.cap_usd = cap_usd
        self._spent = _nearest(spent_usd)
        self._unsure = _nearest(unsure_usd)
        self._reserved: dict[Hashable, int] = {}
        self._reserved_sum = 0

    @property
    def in_flight(self) -> int:
        """Requests with a reservation."""
        return len(self._reserved)

    def view(self) -> SpendView:
        """The account now."""
        return SpendView(_usd(self._spent), _usd(self._unsure), _usd(self._reserved_sum), self.cap_usd)

    def fits(self, worst_usd: float) -> bool:
        """Whether one more request may be sent that costs at most so much."""
        if self.cap_usd is None:
            return True
        return self._spent + self._unsure + self._reserved_sum + _up(worst_usd) <= _down(self.cap_usd)

    def reserve(self, key: Hashable, worst_usd: float) -> bool:
        """Sets aside what a request costs at worst; False (and nothing is changed) where it does not fit.

        Raises ValueError where `key` holds a reservation already.
        """
        if key in self._reserved:
            raise ValueError(f"{key!r} has a reservation already")
        if not self.fits(worst_usd):
            return False
        self._reserved[key] = _up(worst_usd)
        self._reserved_sum += self._reserved[key]
        return True

    def settle(self, key: Hashable, billed_usd: float, *, at_most_usd: float | None = None) -> float:
        """A request has ended and costs `billed_usd`. Returns what it may have cost beyond, in USD.

        `at_most_usd`: the API never told its bill, `billed_usd` is an estimate; what lies between stays set aside for good.
        Raises KeyError without a reservation.
        """
        self._reserved_sum -= self._reserved.pop(key)
        billed = _nearest(billed_usd)
        self._spent += billed
        beyond = 0 if at_most_usd is None else max(0, _up(at_most_usd) - billed)
        self._unsure += beyond
        return _usd(beyond)

    def is_reserved(self, key: Hashable) -> bool:
        """Whether the request still holds its reservation."""
        return key in self._reserved


def projected_usd(spent_usd: float, tokens_made: int, tokens_to_make: float) -> float | None:
    """What it comes to once `tokens_to_make` more completion tokens cost what those before did; None before the first."""
    return None if tokens_made <= 0 else spent_usd * (1.0 + tokens_to_make / tokens_made)


def _nearest(usd: float) -> int:
    return round(usd * UNITS_PER_USD)


def _up(usd: float) -> int:
    return math.ceil(usd * UNITS_PER_USD)


def _down(usd: float) -> int:
    return math.floor(usd * UNITS_PER_USD)


def _usd(units: int) -> float:
    return units / UNITS_PER_USD
