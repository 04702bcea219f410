"""Says when a replica has stopped making tokens although it has work. Pure: fed with what was seen, keeps no clock.

A failed health probe is no stall (a long prefill fails it), a healthy one no proof of life (it is answered while nothing is
scheduled). What counts is movement: tokens made, requests finished, or the scheduler's own heartbeat with an empty queue.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Verdict(StrEnum):
    """What is wrong, if anything."""

    MOVING = "moving"
    # It runs and queues nothing, and yet ours are unanswered. Said once; if sending them again moves nothing, it stalls.
    LOST_REQUESTS = "lost requests"
    STALLED = "stalled"  # work is there and nothing moves


@dataclass(slots=True)
class StallWatch:
    """Watches one life of one replica.

    Attributes:
        stall_after_s: seconds without movement, with requests in flight, until the verdict.
    """

    stall_after_s: float
    _progress: tuple[float | None, int] = (None, 0)
    _moved_at: float | None = None
    _empty_since: float | None = None
    _lost_before: bool = False  # and nothing has moved since

    def feed(
        self, now: float, *, in_flight: int, generated_tokens: float | None, answered: int, engine_requests: int | None
    ) -> Verdict:
        """One observation.

        Args:
            now: seconds of any steady clock.
            in_flight: requests of ours that this replica has not answered.
            generated_tokens: the engine's cumulative count; None where it cannot be read.
            answered: requests of ours that it has answered in this life.
            engine_requests: running + queued as the engine says; None where it cannot be read.
        """
        progress = (generated_tokens, answered)
        moved = answered != self._progress[1] or (generated_tokens is not None and generated_tokens != self._progress[0])
        if moved or in_flight == 0 or self._moved_at is None:
            self._moved_at = now
        if moved:
            self._lost_before = False
        if generated_tokens is not None or moved:
            self._progress = progress
        if in_flight == 0 or engine_requests != 0:
            self._empty_since = None
        elif self._empty_since is None or answered != self._progress[1]:
            self._empty_since = now
        if now - self._moved_at < self.stall_after_s:
            return Verdict.MOVING
        empty_s = 0.0 if self._empty_since is None else now - self._empty_since
        if empty_s < self.stall_after_s / 2 or self._lost_before:
            return Verdict.STALLED
        self._moved_at, self._empty_since, self._lost_before = now, None, True
        return Verdict.LOST_REQUESTS
