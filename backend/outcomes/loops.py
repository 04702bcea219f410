"""Texts that go round in circles: a loop that a text ends in, or one token that it mostly consists of."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any, Final

# A loop: at least so many equal copies of at most so many tokens, together at least so long, up to the end of the text.
LOOP_MAX_PERIOD_TOKENS: Final = 128
LOOP_MIN_COPIES: Final = 3
LOOP_MIN_TOKENS: Final = 48
# One token that dominates: a loop of period 1 with gaps.
DOMINANT_SHARE: Final = 0.6
DOMINANT_MIN_TOKENS: Final = 64
CHARACTERS_PER_TOKEN: Final = 4  # where ids are missing, characters are compared in place of tokens

_SAMPLED_CHARACTERS: Final = 16_384  # enough to tell which character a long text mostly consists of


def find_loop(ids: Sequence[int] | None, text: str) -> tuple[int, float] | None:
    """Period in tokens, and share of the text, of a loop that the text ends in or of one token that dominates it; else None.

    Compares ids, or characters where ids are missing. One last token after the loop is let through: it ends the text.
    """
    sequence: Sequence[Any] = text.rstrip() if ids is None else ids
    unit = CHARACTERS_PER_TOKEN if ids is None else 1
    for end in (len(sequence), len(sequence) - 1):
        period = _loop_period(sequence, end, LOOP_MAX_PERIOD_TOKENS * unit, LOOP_MIN_TOKENS * unit)
        if period:
            covered = period + _equal_run(sequence, end, period)
            return max(1, round(period / unit)), covered / len(sequence)
    share = _dominant_share(ids, text)
    return None if share is None else (1, share)


def _dominant_share(ids: Sequence[int] | None, text: str) -> float | None:
    """Share of the most frequent token (or character, white space aside: code is indented), where it dominates."""
    sampled: Sequence[Any] = ids if ids is not None else "".join(text[:: len(text) // _SAMPLED_CHARACTERS + 1].split())
    least = DOMINANT_MIN_TOKENS * (CHARACTERS_PER_TOKEN if ids is None else 1)
    if len(sampled) < least:
        return None
    ((_, count),) = Counter(sampled).most_common(1)
    share = count / len(sampled)
    return share if share >= DOMINANT_SHARE else None


def _loop_period(sequence: Sequence[Any], end: int, max_period: int, min_length: int) -> int | None:
    tail = sequence[max(0, end - max(LOOP_MIN_COPIES * max_period, min_length + max_period)) : max(0, end)]
    size = len(tail)
    for period in range(1, min(max_period, size // LOOP_MIN_COPIES) + 1):
        run = max((LOOP_MIN_COPIES - 1) * period, min_length - period)  # so many places equal the one a period before
        if run + period > size or tail[size - 1] != tail[size - 1 - period]:
            continue
        if tail[size - run :] == tail[size - run - period : size - period]:
            return period
    return None


def _equal_run(sequence: Sequence[Any], end: int, period: int) -> int:
    # How many places before `end` equal the one a period earlier: by blocks first, as texts may have megabytes.
    place, block = end, 4096
    while block:
        while place - block >= period and sequence[place - block : place] == sequence[place - block - period : place - period]:
            place -= block
        block //= 4
    return end - place
