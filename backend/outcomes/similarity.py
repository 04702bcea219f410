"""How alike answers are: a hash of which similar texts share most bits, and which answers repeat ones before them.

Near-duplicates are a relation between texts. They are counted beside the outcomes and never change one: an outcome that hung on
other rows would be another one after each sealed shard, redo or export.
"""

from __future__ import annotations

from collections import Counter, deque
from typing import Final

import numpy as np

SIMHASH_CHARACTERS: Final = 16_384  # of the beginning; texts that agree so far are near-duplicates anyway
SIMHASH_GRAM: Final = 8  # characters

NEAR_BITS: Final = 3  # hashes that differ in at most so many of 64 bits
NEAR_OTHERS: Final = 5  # at least so many answers before it are near
NEAR_WINDOW: Final = 2_000  # among so many that were finished last: what repeats in a fifth of a dataset does so in any of them
NEAR_MIN_TOKENS: Final = 32  # of the answer: short ones ("The answer is 4.") may be equal and right

_BANDS: Final = NEAR_BITS + 1  # by the pigeonhole principle near hashes agree in one of so many parts
_BAND_BITS: Final = 64 // _BANDS
_ALL_BITS: Final = 2**64 - 1  # of a signed integer


def simhash(text: str) -> int | None:
    """64 bits, as a signed integer, of which similar texts share most, white space and case aside; None when blank.

    Charikar, "Similarity Estimation Techniques from Rounding Algorithms", STOC 2002, over grams of 8 characters.
    """
    plain = " ".join(text[: 2 * SIMHASH_CHARACTERS].split()).lower()[:SIMHASH_CHARACTERS]
    if not plain:
        return None
    codes = np.frombuffer(plain.encode("utf-32-le", "surrogatepass"), dtype=np.uint32).astype(np.uint64)
    gram = min(SIMHASH_GRAM, len(codes))
    count = len(codes) - gram + 1
    hashes = np.zeros(count, dtype=np.uint64)
    for offset in range(gram):
        hashes = hashes * np.uint64(0x100000001B3) + codes[offset : offset + count]
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):  # spreads each bit over all 64
        hashes = (hashes ^ (hashes >> np.uint64(shift))) * np.uint64(factor)
    hashes ^= hashes >> np.uint64(31)
    bits = np.unpackbits(hashes.astype("<u8").view(np.uint8).reshape(count, 8), axis=1, bitorder="little")
    majority = bits.sum(axis=0, dtype=np.int64) * 2 > count
    return int(np.packbits(majority, bitorder="little").view("<i8")[0])


class NearDuplicates:
    """Says of each answer, as it comes, whether it repeats some that came shortly before. O(answers in a band) for each."""

    def __init__(self) -> None:
        self._window: deque[int] = deque()
        self._copies: Counter[int] = Counter()  # of each hash in the window
        self._bands: list[dict[int, set[int]]] = [{} for _ in range(_BANDS)]  # part of a hash → the hashes that have it

    def add(self, hash_: int | None, answer_tokens: int | None) -> bool:
        """Whether the answer repeats NEAR_OTHERS of those before it. An answer that is too short to tell never does."""
        if hash_ is None or answer_tokens is None or answer_tokens < NEAR_MIN_TOKENS:
            return False
        parts = _parts(hash_)
        repeats = self._count_near(hash_, parts) >= NEAR_OTHERS
        self._window.append(hash_)
        self._copies[hash_] += 1
        if self._copies[hash_] == 1:
            for band, part in zip(self._bands, parts, strict=True):
                band.setdefault(part, set()).add(hash_)
        if len(self._window) > NEAR_WINDOW:
            self._forget(self._window.popleft())
        return repeats

    def _count_near(self, hash_: int, parts: tuple[int, ...]) -> int:
        near = self._copies.get(hash_, 0)
        seen = {hash_}
        for band, part in zip(self._bands, parts, strict=True):
            if near >= NEAR_OTHERS:
                break
            for other in band.get(part, ()):
                if other not in seen and ((hash_ ^ other) & _ALL_BITS).bit_count() <= NEAR_BITS:
                    seen.add(other)
                    near += self._copies[other]
        return near

    def _forget(self, hash_: int) -> None:
        self._copies[hash_] -= 1
        if self._copies[hash_]:
            return
        del self._copies[hash_]
        for band, part in zip(self._bands, _parts(hash_), strict=True):
            band[part].discard(hash_)
            if not band[part]:
                del band[part]


def _parts(hash_: int) -> tuple[int, ...]:
    return tuple((hash_ >> (_BAND_BITS * i)) & ((1 << _BAND_BITS) - 1) for i in range(_BANDS))
