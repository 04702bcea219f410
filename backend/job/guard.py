"""Judges the samples of one dataset in the order in which they were STARTED, and says when it is to be held. Pure.

Empty answers finish first. Judged in the order of finishing, a dataset of which every tenth answer is empty looks as if all
were, as long as the others are in flight. Here an unfinished sample keeps its place and counts as not bad (and as of no certain
length), whatever becomes of it: aborted, it keeps its place until it is started again.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np

from backend.holds import SHARES, GuardKind
from backend.job.mean_guard import MeanGuard
from backend.job.share_guard import ShareGuard

LOOKS: Final = 64  # while a long row of samples is unsettled it is looked at as often as it grows by this part of itself

_BITS: Final = {kind: 1 << place for place, kind in enumerate(SHARES)}
_FINISHED: Final = 1 << len(SHARES)
_COMPACT_AT: Final = 4_096


@dataclass(frozen=True, slots=True)
class Finding:
    """What speaks against a dataset."""

    kind: GuardKind
    measured: float  # a share 0..1, or a mean in tokens
    limit: float  # likewise
    judged: int  # over so many samples that were started one after the other
    hits: int | None  # so many of which count; None for a mean
    lately: bool  # the newest ones, not all from the beginning on


class Guard:
    """All that is judged of one dataset. Keys are any that tell samples apart."""

    def __init__(self, limits: Mapping[GuardKind, float]) -> None:
        """`limits`: shares from 0 to 1 (1: none), for SHORT and LONG means in tokens; what is not among them is not judged."""
        self._limits = dict(limits)
        self._shares = {kind: ShareGuard(limits[kind]) for kind in SHARES if limits.get(kind, 1.0) < 1.0}
        self._mean = MeanGuard(limits.get(GuardKind.SHORT), limits.get(GuardKind.LONG))
        self._codes = bytearray()  # of all samples from the first unsettled one on, in order: finished, and what they are
        self._settled = 0  # how many of these are settled by now; they are dropped together
        self._dropped = 0
        self._places: dict[Hashable, int] = {}  # of unfinished samples, counted from the very first
        self._lengths: dict[
            int, int
        ] = {}  # of finished samples that are not settled, by place; those that tell none are missing
        self._unseen = dict.fromkeys(SHARES, 0)  # hits since a share was looked at

    def set_limit(self, kind: GuardKind, limit: float) -> None:
        """Another limit from now on; what was settled before no longer speaks for or against the dataset."""
        self._limits[kind] = limit
        if kind not in SHARES:
            self._mean = MeanGuard(self._limits.get(GuardKind.SHORT), self._limits.get(GuardKind.LONG))
        elif limit < 1.0:
            self._shares[kind] = ShareGuard(limit)
        else:
            self._shares.pop(kind, None)

    def begin_anew(self, kinds: Collection[GuardKind]) -> None:
        """What was settled before no longer speaks for or against the dataset in these ways."""
        for kind in kinds:
            if kind in self._limits:
                self.set_limit(kind, self._limits[kind])

    @property
    def judged(self) -> int:
        """How many samples were started."""
        return self._dropped + len(self._codes)

    def started(self, key: Hashable) -> None:
        """A sample was started; one that was started before and did not finish keeps its place."""
        if key not in self._places:
            self._places[key] = self._dropped + len(self._codes)
            self._codes.append(0)

    def finished(self, key: Hashable, kinds: Collection[GuardKind], tokens: int | None) -> Finding | None:
        """A sample that was started has ended: what it counts for, and its length. Says what speaks against the dataset.

        A key that was not started is passed over.
        """
        place = self._places.pop(key, None)
        if place is None:
            return None
        self._codes[place - self._dropped] = _FINISHED | sum(_BITS[kind] for kind in kinds if kind in _BITS)
        if tokens is not None:
            self._lengths[place] = tokens
        found = self._settle()
        for kind in self._shares:
            if kind in kinds:
                found = self._look(kind) or found
        return found

    def _settle(self) -> Finding | None:
        found = None
        while self._settled < len(self._codes) and (code := self._codes[self._settled]):
            for kind, share in self._shares.items():
                share.settle(hit=bool(code & _BITS[kind]))
            tokens = self._lengths.pop(self._dropped + self._settled, None)
            self._settled += 1
            outside = None if tokens is None else self._mean.settle(tokens)
            if outside is not None:
                kind = GuardKind.SHORT if outside.short else GuardKind.LONG
                found = Finding(kind, outside.mean_tokens, self._limits[kind], outside.judged, None, outside.lately)
        if self._settled > _COMPACT_AT:
            del self._codes[: self._settled]
            self._dropped, self._settled = self._dropped + self._settled, 0
        return found

    def _look(self, kind: GuardKind) -> Finding | None:
        unsettled = len(self._codes) - self._settled
        self._unseen[kind] += 1
        if self._shares[kind].limit > 0 and self._unseen[kind] < 1 + unsettled // LOOKS:
            return None
        self._unseen[kind] = 0
        tail = np.frombuffer(self._codes, dtype=np.uint8, offset=self._settled) if unsettled else np.empty(0, dtype=np.uint8)
        excess = self._shares[kind].excess((tail & _BITS[kind]) > 0)
        if excess is None:
            return None
        return Finding(kind, excess.share, self._limits[kind], excess.judged, excess.hits, excess.lately)
