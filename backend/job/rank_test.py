"""PURE: whether two samples differ by more than chance, by ranks: no shape of distribution is assumed, and ties are fine.

The rank sum test of Wilcoxon (Mann and Whitney), summed over strata with the weights 1 / (n + m + 1) of van Elteren (1960), so
that a dataset with long answers is compared with itself alone. Normal approximation, corrected for ties.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Final

LEAST: Final = 4  # values on each side of a stratum: with fewer the approximation means nothing


def p_value(strata: Iterable[tuple[Sequence[float], Sequence[float]]]) -> float | None:
    """The chance of ranks at least so different, were both sides drawn alike; two-sided. None where too little is there."""
    difference = variance = 0.0
    for one, other in strata:
        n, m = len(one), len(other)
        if min(n, m) < LEAST:
            continue
        rank_sum, ties = _rank_sum(one, other)
        total = n + m
        weight = 1.0 / (total + 1)
        difference += weight * (rank_sum - n * (total + 1) / 2)
        variance += weight**2 * n * m / 12 * ((total + 1) - ties / (total * (total - 1)))
    if variance <= 0.0:
        return None
    return math.erfc(abs(difference) / math.sqrt(2 * variance))


def _rank_sum(one: Sequence[float], other: Sequence[float]) -> tuple[float, float]:
    """The sum of the ranks of `one` among both, equal values sharing their mean rank; and the sum of t³ - t over ties."""
    marked = sorted([(value, True) for value in one] + [(value, False) for value in other])
    rank_sum, ties, begin = 0.0, 0.0, 0
    while begin < len(marked):
        end = begin
        while end < len(marked) and marked[end][0] == marked[begin][0]:
            end += 1
        count = end - begin
        rank_sum += (begin + 1 + end) / 2 * sum(own for _, own in marked[begin:end])
        ties += count**3 - count
        begin = end
    return rank_sum, ties
