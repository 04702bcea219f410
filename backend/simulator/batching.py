"""Continuous batching on a clock that is passed in: queue, prefill, decode on the speed curve, KV pool with retraction.

No I/O and no real time. All running requests gain tokens at the same pace, so the state is one number, the tokens that a
request running since the beginning would have (`_pace`), and a heap of the paces at which requests end: a step may advance
by thousands of tokens and every completion is still at its exact moment.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum, StrEnum

from backend.simulator.curve import SpeedCurve
from backend.simulator.prefix_cache import PrefixCache

MAX_PREFILL_TOKENS = 16384
_CLIP_NEW_TOKENS = 4096
_RATIO_START, _RATIO_FLOOR, _RATIO_STEPS = 0.7, 0.098, 600
_RETRACT_ROOM_STEPS = 20
_RECHECK_STEPS = 20
"""How often a request that waits for room in the pool is looked at again: the reserve for running ones shrinks meanwhile."""


class _Stop(Enum):
    """What ends a stretch of decoding."""

    END = 1
    FULL = 2
    RECHECK = 3


class FinishKind(StrEnum):
    """Why a request ended, in SGLang's words."""

    STOP = "stop"
    LENGTH = "length"
    ABORT = "abort"


@dataclass(frozen=True, slots=True)
class Finish:
    """How a request ended; message and status only for aborts."""

    kind: FinishKind
    message: str = ""
    status: int | None = None
    was_waiting: bool = False


@dataclass(slots=True, eq=False)
class Sequence:
    """One request inside the scheduler. Times are of the scheduler's clock, in seconds."""

    rid: str
    prompt_tokens: int
    target_tokens: int
    """Tokens it will generate, cap included."""
    ends_by: FinishKind
    max_new_tokens: int
    arrived_at: float
    prompt_chars: int = 0
    blocks: tuple[int, ...] = ()
    generated: int = 0
    cached_tokens: int = 0
    retractions: int = 0
    admitted_at: float | None = None
    first_token_at: float | None = None
    finished_at: float | None = None
    finish: Finish | None = None
    on_finish: Callable[[Sequence], None] | None = None
    _joined_pace: float = 0.0
    _joined_generated: int = 0
    _serial: int = 0


@dataclass(frozen=True, slots=True)
class PrefillReport:
    """What SGLang's "Prefill batch" line tells."""

    new_sequences: int
    new_tokens: int
    cached_tokens: int
    running: int
    queued: int
    pending_tokens: int
    seconds: float


@dataclass(frozen=True, slots=True)
class RetractReport:
    """What the warning about a full KV pool tells."""

    retracted: int
    tokens_gained: int
    ratio_before: float
    ratio_after: float


@dataclass(slots=True)
class Totals:
    """Cumulative counts since the start (or since they were reset)."""

    decoded: int = 0
    """Decoded tokens of requests that left the batch; the first token of a request counts as prefill."""
    prefill_computed: int = 0
    prefill_cached: int = 0
    prefill_busy_us: int = 0
    prefill_passes: int = 0
    retracted: int = 0
    retracted_input: int = 0
    retracted_output: int = 0
    moments: list[float] = field(default_factory=lambda: [0.0] * 6)
    """n, Σb, Σt_us, Σb², Σb·t, Σgenerated over decode steps."""


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
        self.running: dict[str, Sequence] = {}
        self.prefilling: list[Sequence] = []
        self.prefill_reports: list[PrefillReport] = []
        self.retract_reports: list[RetractReport] = []
        self._tokens_per_step = tokens_per_step
        self._slowdown = 1.0
        self._halted = False
        self._halted_at = now
        self._last = now
        self._pace = 0.0
        self._serial = 0
        self._ends: list[tuple[float, int, Sequence]] = []
        self._base_tokens = 0.0
        self._prefill_ends_at = 0.0
        self._ratio_set = _RATIO_START
        self._ratio_set_pace = 0.0
        self._reset_decoded = 0
        self._pool_blocks = False

    # ---- what others read

    @property
    def halted(self) -> bool:
        return self._halted

    @property
    def decode_steps(self) -> float:
        """Decode iterations so far, whoever ran in them."""
        return self._pace / self._tokens_per_step

    @property
    def used_tokens(self) -> int:
        """Tokens of the KV pool held by running requests and by those being prefilled."""
        held = self._base_tokens + len(self.running) * self._pace
        return round(held) + sum(sequence.prompt_tokens + sequence.generated for sequence in self.prefilling)

    @property
    def decoded_total(self) -> int:
        """Decoded tokens, those of running requests included."""
        return self.totals.decoded + sum(self._decoded_of(sequence) for sequence in self.running.values()) - self._reset_decoded

    @property
    def new_token_ratio(self) -> float:
        steps = (self._pace - self._ratio_set_pace) / self._tokens_per_step
        return max(_RATIO_FLOOR, self._ratio_set - (_RATIO_START - _RATIO_FLOOR) / _RATIO_STEPS * steps)

    @property
    def idle(self) -> bool:
        return not (self.running or self.prefilling or self.waiting)

    @property
    def running_count(self) -> int:
        return len(self.running) + len(self.prefilling)

    def generated_of(self, sequence: Sequence) -> int:
        """Tokens that a request has so far."""
        if sequence.finish is not None or sequence.rid not in self.running:
            return sequence.generated
        return sequence._joined_generated + self._decoded_of(sequence)

    def _decoded_of(self, sequence: Sequence) -> int:
        gained = int(self._pace - sequence._joined_pace + 1e-6)
        return min(gained, sequence.target_tokens - sequence._joined_generated)

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
            stop_at = self._last + (stop_pace - self._pace) / pace_per_s
            if stop_at > now:
                self._decode_to(self._pace + (now - self._last) * pace_per_s, now)
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
        return self._last + (stop_pace - self._pace) / self._pace_per_s()

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
        self._reset_decoded = sum(self._decoded_of(sequence) for sequence in self.running.values())
        self.totals = Totals()

    # ---- inside

    def _pace_per_s(self) -> float:
        count = len(self.running)
        return self.curve.at(count) * self.speed / self._slowdown / count

    def _next_stop(self) -> tuple[float, _Stop]:
        """The pace at which something happens next, and what."""
        while self._ends and self._ends[0][1] != self._ends[0][2]._serial:
            heapq.heappop(self._ends)
        pace, stop = self._ends[0][0], _Stop.END
        full_pace = (self.pool_tokens - self._base_tokens) / len(self.running)
        if full_pace < pace:
            pace, stop = full_pace, _Stop.FULL
        if self._pool_blocks and self._pace + _RECHECK_STEPS * self._tokens_per_step < pace:
            return self._pace + _RECHECK_STEPS * self._tokens_per_step, _Stop.RECHECK
        return max(pace, self._pace), stop

    def _decode_to(self, pace: float, at: float) -> None:
        gained, seconds, count = pace - self._pace, at - self._last, len(self.running)
        steps = gained / self._tokens_per_step
        moments, micro = self.totals.moments, seconds * 1e6
        moments[0] += steps
        moments[1] += count * steps
        moments[2] += micro
        moments[3] += count * count * steps
        moments[4] += count * micro
        moments[5] += count * gained
        self._pace, self._last = pace, at

    def _admit(self) -> None:
        self._pool_blocks = False
        if self.prefilling or not self.waiting:
            return
        room = self.max_running - len(self.running)
        if room <= 0:
            return
        ratio = self.new_token_ratio
        free = self.pool_tokens - self.used_tokens
        for sequence in self.running.values():
            remaining = sequence.max_new_tokens - self.generated_of(sequence)
            free -= int(min(remaining, _CLIP_NEW_TOKENS) * ratio)
        batch: list[Sequence] = []
        new_tokens = cached_tokens = 0
        while self.waiting and len(batch) < room:
            sequence = self.waiting[0]
            total = sequence.prompt_tokens + sequence.generated
            need = total + int(min(sequence.max_new_tokens - sequence.generated, _CLIP_NEW_TOKENS) * ratio) + 1
            alone = not self.running and not batch
            self._pool_blocks = need > free and not alone
            if self._pool_blocks or (batch and new_tokens + total > MAX_PREFILL_TOKENS):
                break
            self.waiting.popleft()
            cached = self.prefix_cache.match(sequence.blocks, sequence.prompt_chars, sequence.prompt_tokens)
            if sequence.admitted_at is None:
                sequence.admitted_at = self._last
                sequence.cached_tokens = cached
            self.prefix_cache.remember(sequence.blocks)
            batch.append(sequence)
            free -= need
            new_tokens += total - cached
            cached_tokens += cached
        if not batch:
            return
        self.prefilling = batch
        seconds = new_tokens / (self.prefill_tokens_per_s * self.speed)
        self._prefill_ends_at = self._last + seconds
        totals = self.totals
        totals.prefill_computed += new_tokens
        totals.prefill_cached += cached_tokens
        totals.prefill_busy_us += round(seconds * 1e6)
        totals.prefill_passes += 1
        pending = sum(sequence.prompt_tokens for sequence in self.waiting)
        self.prefill_reports.append(
            PrefillReport(len(batch), new_tokens, cached_tokens, len(self.running), len(self.waiting), pending, seconds)
        )

    def _join_prefilled(self, finished: list[Sequence]) -> None:
        batch, self.prefilling = self.prefilling, []
        for sequence in batch:
            sequence.generated += 1
            if sequence.first_token_at is None:
                sequence.first_token_at = self._last
            if sequence.generated >= sequence.target_tokens:
                self._close(sequence, Finish(sequence.ends_by), self._last)
                finished.append(sequence)
                continue
            self._serial += 1
            sequence._serial = self._serial
            sequence._joined_pace = self._pace
            sequence._joined_generated = sequence.generated
            self.running[sequence.rid] = sequence
            self._base_tokens += sequence.prompt_tokens + sequence.generated - self._pace
            end = self._pace + sequence.target_tokens - sequence.generated
            heapq.heappush(self._ends, (end, sequence._serial, sequence))

    def _leave(self, sequence: Sequence) -> None:
        decoded = self._decoded_of(sequence)
        self.totals.decoded += decoded
        sequence.generated = sequence._joined_generated + decoded
        self._base_tokens -= sequence.prompt_tokens + sequence._joined_generated - sequence._joined_pace
        sequence._serial = 0
        del self.running[sequence.rid]
        if not self.running:
            self._base_tokens = 0.0

    def _finish_ended(self, finished: list[Sequence]) -> None:
        while self._ends and (self._ends[0][1] != self._ends[0][2]._serial or self._ends[0][0] <= self._pace + 1e-7):
            _, serial, sequence = heapq.heappop(self._ends)
            if serial == sequence._serial:
                self._leave(sequence)
                self._close(sequence, Finish(sequence.ends_by), self._last)
                finished.append(sequence)

    def _retract(self, finished: list[Sequence]) -> None:
        """The pool is full: send requests with the fewest tokens back until the others have room for some steps."""
        ratio_before, used_before = self.new_token_ratio, self.used_tokens
        order = sorted(self.running.values(), key=lambda one: (-self.generated_of(one), one.prompt_tokens))
        retracted: list[Sequence] = []
        while len(self.running) > 1 and self.pool_tokens - self.used_tokens < _RETRACT_ROOM_STEPS * len(self.running):
            sequence = order.pop()
            self._leave(sequence)
            sequence.retractions += 1
            self.totals.retracted += 1
            self.totals.retracted_input += sequence.prompt_tokens
            self.totals.retracted_output += sequence.generated
            retracted.append(sequence)
        if not retracted:
            sequence = order[0]
            self._leave(sequence)
            message = "Out of memory even after retracting all other requests in the decode batch."
            self._close(sequence, Finish(FinishKind.ABORT, message, 500), self._last)
            finished.append(sequence)
            return
        self.waiting.extend(retracted)
        generated = sum(self.generated_of(sequence) for sequence in self.running.values())
        allowed = sum(sequence.max_new_tokens for sequence in self.running.values())
        self._ratio_set = min(1.0, (generated + _RETRACT_ROOM_STEPS * len(self.running)) / (allowed + 1))
        self._ratio_set_pace = self._pace
        gained = used_before - self.used_tokens
        self.retract_reports.append(RetractReport(len(retracted), gained, ratio_before, self._ratio_set))

    def _close(self, sequence: Sequence, finish: Finish, at: float) -> None:
        sequence.finish = finish
        sequence.finished_at = at
        if sequence.on_finish is not None:
            sequence.on_finish(sequence)
