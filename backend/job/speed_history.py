"""What the server made while the run was active, in even bins, as the forecast wants it. Pure: times come from the caller.

Bins of ten seconds for the first hour, of a minute from then on, a day of them. Seconds in which nothing is in flight (a pause,
a model that loads at the start) do not exist here; seconds of an outage do, because requests wait through it.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from backend.forecast.observation import Floats, SpeedHistory

FINE_S: Final = 10.0
COARSE_S: Final = 60.0
FINE_BINS: Final = 360
KEPT_BINS: Final = 1440
LONGEST_STEP_S: Final = 60.0  # between two looks: what is longer was a machine asleep


class SpeedBins:
    """Tokens and requests running, bin by bin."""

    def __init__(self) -> None:
        self.bin_s = FINE_S
        self._tokens: list[float] = []  # of each full bin
        self._request_s: list[float] = []  # requests running × seconds
        self._open_s = self._open_tokens = self._open_request_s = 0.0

    def add(self, seconds: float, tokens: float, running: float) -> None:
        """`tokens` were made in these seconds (fewer than none where what was made before is lost), by so many requests."""
        if not 0 < seconds <= LONGEST_STEP_S:
            return
        while seconds > 0:
            step_s = min(seconds, self.bin_s - self._open_s)
            share = step_s / seconds
            self._open_s += step_s
            self._open_tokens += tokens * share
            self._open_request_s += running * step_s
            tokens, seconds = tokens * (1 - share), seconds - step_s
            if self._open_s >= self.bin_s - 1e-9:
                self._close_bin()

    def history(self) -> SpeedHistory:
        """The full bins."""
        tokens, request_s = np.array(self._tokens), np.array(self._request_s)
        return SpeedHistory(
            self.bin_s,
            np.round(np.maximum(_without_debt(tokens), 0.0) / self.bin_s, 2),
            np.round(request_s / self.bin_s, 2),
        )

    def _close_bin(self) -> None:
        self._tokens.append(self._open_tokens)
        self._request_s.append(self._open_request_s)
        self._open_s = self._open_tokens = self._open_request_s = 0.0
        if self.bin_s == FINE_S and len(self._tokens) == FINE_BINS:
            self.bin_s = COARSE_S
            self._tokens, self._request_s = _six(self._tokens), _six(self._request_s)
        del self._tokens[:-KEPT_BINS], self._request_s[:-KEPT_BINS]


def _six(values: list[float]) -> list[float]:
    return [sum(values[i : i + 6]) for i in range(0, len(values), 6)]


def _without_debt(tokens: Floats) -> Floats:
    """A bin that made less than nothing, because what was made before was lost, takes the rest from the bins before it."""
    paid = tokens.copy()
    debt = 0.0
    for i in range(len(paid) - 1, -1, -1):
        paid[i] += debt
        debt = min(paid[i], 0.0)
    return paid
