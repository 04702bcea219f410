"""Continuous batching on a clock that is passed in: queue, prefill, decode on the speed curve, KV pool with retraction.

No I/O and no real time. A step may advance by thousands of tokens and every completion is still at its exact moment
(decoding.py says how).
"""

from __future__ import annotations

from collections import deque
from enum import Enum

from backend.simulator.curve import SpeedCurve
from backend.simulator.decoding import DecodeBatch
from backend.simulator.pool_reserve import RETRACT_ROOM_STEPS, NewTokenRatio, reserved_tokens, retraction_order
from backend.simulator.prefill import take_batch
from backend.simulator.prefix_cache import PrefixCache
from backend.simulator.sequences import Finish, FinishKind, PrefillReport, RetractReport, Sequence, Totals

_RECHECK_STEPS = 20
"""How often a request that waits for room in the pool is looked at again: the reserve for running ones shrinks meanwhile."""


class _Stop(Enum):
    """What ends a stretch of decoding."""

    END = 1
    FULL = 2
    RECHECK = 3


class Scheduler:
    """Requests in, finished requests out, on the caller's clock (seconds, never going back)."""

    def __init__(
        self,
        *,
        curve: SpeedCurve,
        speed: float,
        prefill_tokens_per_s: float,
        max_running: int,
        max_queued: int | None,
        pool_tokens: int,
        prefix_cache: PrefixCache,
        now: float,
        tokens_per_step: float = 1.0,
    ) -> None:
        self.curve = curve
        self.speed = speed
        self.prefill_tokens_per_s = prefill_tokens_per_s
        self.max_running = max_running
        self.max_queued = max_queued
        self.pool_tokens = pool_tokens
        self.prefix_cache = prefix_cache
        self.totals = Totals()
        self.waiting: deque[Sequence] = deque()
        self.batch = DecodeBatch()
        self.prefilling: list[Sequence] = []
        self.prefill_reports: list[PrefillReport] = []
        self.retract_reports: list[RetractReport] = []
        self._tokens_per_step = tokens_per_step
        self._slowdown = 1.0
        self._halted = False
        self._halted_at = now
        self._last = now
        self._prefill_ends_at = 0.0
        self._ratio = NewTokenRatio()
        self._reset_decoded = 0
        self._pool_blocks = False

    # ---- what others read

    @property
    def halted(self) -> bool:
        return self._halted

    @property
    def decode_steps(self) -> float:
        """Decode iterations so far, whoever ran in them."""
        return self.batch.pace / self._tokens_per_step

    @property
    def running(self) -> dict[str, Sequence]:
        """Decoding requests by rid."""
        return self.batch.sequences

    @property
    def used_tokens(self) -> int:
        """Tokens of the KV pool held by running requests and by those being prefilled."""
        return self.batch.held_tokens + sum(one.prompt_tokens + one.generated for one in self.prefilling)

    @property
    def decoded_total(self) -> int:
        """Decoded tokens, those of running requests included."""
        return self.totals.decoded + self._decoded_by_running() - self._reset_decoded

    @property
    def new_token_ratio(self) -> float:
        return self._ratio.at(self.decode_steps)

    @property
    def idle(self) -> bool:
        return not (self.running or self.prefilling or self.waiting)

    @property
    def running_count(self) -> int:
        return len(self.running) + len(self.prefilling)

    def generated_of(self, sequence: Sequence) -> int:
        """Tokens that a request has so far."""
        return self.batch.generated_of(sequence)

    def _decoded_by_running(self) -> int:
        return sum(self.batch.decoded_of(sequence) for sequence in self.running.values())

    # ---- requests

    def submit(self, sequence: Sequence, now: float) -> list[Sequence]:
        """Queue a request. Returns what finished until now (the request itself if the queue is full)."""
        finished = self.advance(now)
        if self.max_queued is not None and len(self.waiting) >= self.max_queued:
            self._close(sequence, Finish(FinishKind.ABORT, "The request queue is full.", 503, was_waiting=True), now)
            return [*finished, sequence]
        self.waiting.append(sequence)
        return finished + self.advance(now)

    def abort(self, sequence: Sequence, now: float) -> list[Sequence]:
        """End one request, its tokens so far are kept. Returns what finished until now, it included."""
        finished = self.advance(now)
        if sequence.finish is not None:
            return finished
        if sequence.rid in self.running:
            self._leave(sequence)
            self._close(sequence, Finish(FinishKind.ABORT, "Aborted"), now)
        elif sequence in self.prefilling:
            self.prefilling.remove(sequence)
            self._close(sequence, Finish(FinishKind.ABORT, "Aborted"), now)
        elif sequence in self.waiting:
            self.waiting.remove(sequence)
            self._close(sequence, Finish(FinishKind.ABORT, "Abort in waiting queue", was_waiting=True), now)
        else:
            return finished
        return [*finished, sequence, *self.advance(now)]

    # ---- the clock

    def advance(self, now: float) -> list[Sequence]:
        """Let everything happen that happens until `now`. Returns the requests that finished, in order."""
        finished: list[Sequence] = []
        while not self._halted:
            self._admit()
            if self.prefilling:
                if self._prefill_ends_at > now:
                    break
                self._last = max(self._last, self._prefill_ends_at)
                self._join_prefilled(finished)
                continue
            if not self.running:
                break
            stop_pace, stop = self._next_stop()
            pace_per_s = self._pace_per_s()
            stop_at = self._last + (stop_pace - self.batch.pace) / pace_per_s
            if stop_at > now:
                self._decode_to(self.batch.pace + (now - self._last) * pace_per_s, now)
                break
            self._decode_to(stop_pace, stop_at)
            if stop is _Stop.FULL:
                self._retract(finished)
            elif stop is _Stop.END:
                self._finish_ended(finished)
        self._last = max(self._last, now)
        return finished

    def next_event_at(self) -> float | None:
        """When `advance` has something to do next, if nothing arrives; None when nothing will happen by itself."""
        if self._halted:
            return None
        if self.prefilling:
            return self._prefill_ends_at
        if not self.running:
            return None
        stop_pace, _ = self._next_stop()
        return self._last + (stop_pace - self.batch.pace) / self._pace_per_s()

    def seconds_of_steps(self, steps: float) -> float:
        """How long so many decode steps take at the present pace; infinite when nothing is decoded."""
        if not self.running:
            return float("inf")
        return steps * self._tokens_per_step / self._pace_per_s()

    def set_slowdown(self, factor: float, now: float) -> list[Sequence]:
        """Decode `factor` times slower from now on."""
        finished = self.advance(now)
        self._slowdown = factor
        return finished

    def halt(self, now: float) -> list[Sequence]:
        """Freeze: nothing progresses until `go_on`; requests may still arrive."""
        finished = self.advance(now)
        if not self._halted:
            self._halted, self._halted_at = True, now
        return finished

    def go_on(self, now: float) -> list[Sequence]:
        """End a halt; the time in between did not count."""
        if self._halted:
            self._prefill_ends_at += now - self._halted_at
            self._halted = False
            self._last = now
        return self.advance(now)

    def requeue_running(self, now: float) -> list[Sequence]:
        """Send all running requests back to the head of the queue with their tokens (pause in mode retract; call it halted)."""
        finished = self.advance(now)
        back = [*self.running.values(), *self.prefilling]
        for sequence in list(self.running.values()):
            self._leave(sequence)
        self.prefilling.clear()
        self.waiting.extendleft(reversed(back))
        return finished

    def reset_totals(self) -> None:
        """Start all cumulative counts at 0 again, as a new process would."""
        self._reset_decoded = self._decoded_by_running()
        self.totals = Totals()

    # ---- inside

    def _pace_per_s(self) -> float:
        count = len(self.running)
        return self.curve.at(count) * self.speed / self._slowdown / count

    def _next_stop(self) -> tuple[float, _Stop]:
        """The pace at which something happens next, and what."""
        pace, stop = self.batch.next_end(), _Stop.END
        full_pace = self.batch.pace_when_holding(self.pool_tokens)
        if full_pace < pace:
            pace, stop = full_pace, _Stop.FULL
        recheck_pace = self.batch.pace + _RECHECK_STEPS * self._tokens_per_step
        if self._pool_blocks and recheck_pace < pace:
            return recheck_pace, _Stop.RECHECK
        return max(pace, self.batch.pace), stop

    def _decode_to(self, pace: float, at: float) -> None:
        gained = pace - self.batch.pace
        self.totals.add_steps(gained / self._tokens_per_step, gained, at - self._last, len(self.running))
        self.batch.pace, self._last = pace, at

    def _admit(self) -> None:
        self._pool_blocks = False
        places = self.max_running - len(self.running)
        if self.prefilling or not self.waiting or places <= 0:
            return
        ratio = self.new_token_ratio
        batch = take_batch(
            self.waiting,
            places=places,
            free_tokens=self.pool_tokens - self.used_tokens - reserved_tokens(self.batch, ratio),
            ratio=ratio,
            alone=not self.running,
            cache=self.prefix_cache,
            now=self._last,
        )
        self._pool_blocks = batch.pool_blocks
        if not batch.sequences:
            return
        self.prefilling = batch.sequences
        seconds = batch.new_tokens / (self.prefill_tokens_per_s * self.speed)
        self._prefill_ends_at = self._last + seconds
        self.totals.add_prefill(batch.new_tokens, batch.cached_tokens, seconds)
        self.prefill_reports.append(
            PrefillReport(
                new_sequences=len(batch.sequences),
                new_tokens=batch.new_tokens,
                cached_tokens=batch.cached_tokens,
                running=len(self.running),
                queued=len(self.waiting),
                pending_tokens=sum(sequence.prompt_tokens for sequence in self.waiting),
                seconds=seconds,
            )
        )

    def _join_prefilled(self, finished: list[Sequence]) -> None:
        batch, self.prefilling = self.prefilling, []
        for sequence in batch:
            sequence.generated += 1
            if sequence.first_token_at is None:
                sequence.first_token_at = self._last
            if sequence.generated >= sequence.target_tokens:
                self._close(sequence, Finish.by(sequence.ends_by), self._last)
                finished.append(sequence)
                continue
            self.batch.join(sequence)

    def _leave(self, sequence: Sequence) -> None:
        self.totals.decoded += self.batch.leave(sequence)

    def _finish_ended(self, finished: list[Sequence]) -> None:
        for sequence in self.batch.ended():
            self._leave(sequence)
            self._close(sequence, Finish.by(sequence.ends_by), self._last)
            finished.append(sequence)

    def _retract(self, finished: list[Sequence]) -> None:
        """The pool is full: send requests with the fewest tokens back until the others have room for some steps."""
        ratio_before, used_before = self.new_token_ratio, self.used_tokens
        order = retraction_order(self.batch)
        retracted: list[Sequence] = []
        while len(self.running) > 1 and self.pool_tokens - self.used_tokens < RETRACT_ROOM_STEPS * len(self.running):
            sequence = order.pop()
            self._leave(sequence)
            sequence.retractions += 1
            self.totals.add_retracted(sequence)
            retracted.append(sequence)
        if not retracted:
            sequence = order[0]
            self._leave(sequence)
            message = "Out of memory even after retracting all other requests in the decode batch."
            self._close(sequence, Finish(FinishKind.ABORT, message, 500), self._last)
            finished.append(sequence)
            return
        self.waiting.extend(retracted)
        ratio_after = self._ratio.raise_after_retraction(self.batch, self.decode_steps)
        gained = used_before - self.used_tokens
        self.retract_reports.append(RetractReport(len(retracted), gained, ratio_before, ratio_after))

    def _close(self, sequence: Sequence, finish: Finish, at: float) -> None:
        sequence.finish = finish
        sequence.finished_at = at
        if sequence.on_finish is not None:
            sequence.on_finish(sequence)
