"""The shared-memory board that /v1/loads reads: what the scheduler published last, and when."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass

from backend.simulator.batching import Scheduler

_IDLE_INTERVAL_S = 1.0


@dataclass(frozen=True, slots=True)
class LoadSnapshot:
    """What the scheduler last published for /v1/loads; `published_at` is Unix time: the heartbeat."""

    published_at: float
    running: int
    queued: int
    queued_tokens: int
    retracted: int
    """Of the queued ones."""
    used_tokens: int
    moments: tuple[float, ...] | None
    prefill_tokens: int
    prefill_busy_us: int


class LoadBoard:
    """Fresh within some steps while the scheduler works or idles; old as soon as it is halted."""

    def __init__(self, scheduler: Scheduler, *, publish_steps: int) -> None:
        self._scheduler = scheduler
        self._publish_steps = publish_steps
        self._published_at = -math.inf
        self._snapshot = self._take()

    def read(self, now: float) -> LoadSnapshot:
        """The last snapshot; `now` is of the scheduler's clock."""
        scheduler = self._scheduler
        steps_s = scheduler.seconds_of_steps(self._publish_steps)
        interval_s = _IDLE_INTERVAL_S if scheduler.idle else min(steps_s, _IDLE_INTERVAL_S)
        if not scheduler.halted and now - self._published_at >= interval_s:
            self._snapshot = self._take()
            self._published_at = now
        return self._snapshot

    def _take(self) -> LoadSnapshot:
        scheduler = self._scheduler
        totals, waiting = scheduler.totals, scheduler.waiting
        return LoadSnapshot(
            published_at=time.time(),
            running=scheduler.running_count,
            queued=len(waiting),
            queued_tokens=sum(sequence.prompt_tokens for sequence in waiting),
            retracted=sum(1 for sequence in waiting if sequence.retractions),
            used_tokens=scheduler.used_tokens,
            moments=tuple(totals.moments) if totals.moments[0] else None,
            prefill_tokens=totals.prefill_computed,
            prefill_busy_us=totals.prefill_busy_us,
        )
