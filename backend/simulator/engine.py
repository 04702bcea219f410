"""The running scheduler: drives batching.Scheduler on the event loop's clock, knows requests by rid, keeps counts.

Leaves HTTP to the endpoints, the words of answers to texts.py and answers.py.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass

from backend.simulator.batching import Scheduler
from backend.simulator.counters import Gauges, RequestCounts
from backend.simulator.generation import BadRequestError, GenerationRequest, most_new_tokens
from backend.simulator.load_board import LoadBoard, LoadSnapshot
from backend.simulator.log import Log
from backend.simulator.prefix_cache import PrefixCache
from backend.simulator.reports import Reporter
from backend.simulator.sequences import Finish, FinishKind, Sequence
from backend.simulator.settings import SPECULATIVE_MAX_RUNNING, Settings
from backend.simulator.texts import TextPlan

PAUSE = "pause"
"""The reason of a halt that clients ask for; aborts work during it."""


@dataclass(slots=True, eq=False)
class Generation:
    """A request in the engine: what was asked, what will be written, and when it is done."""

    request: GenerationRequest
    plan: TextPlan
    sequence: Sequence
    done: asyncio.Future[None]
    received_at: float
    """Unix time in seconds."""


class Engine:
    """Requests by rid on a simulated GPU. Use inside one event loop."""

    def __init__(self, settings: Settings, log: Log) -> None:
        self.settings = settings
        self.log = log
        self.counts = RequestCounts()
        self.max_running = settings.max_running
        self.generations: dict[str, Generation] = {}
        self.on_busy: Callable[[], None] = lambda: None
        self._loop = asyncio.get_running_loop()
        self._halts: set[str] = set()
        self._late_aborts: set[str] = set()
        self._timer: asyncio.TimerHandle | None = None
        self.prefix_cache = PrefixCache(enabled=not settings.disable_radix_cache)
        self.scheduler = Scheduler(
            curve=settings.curve,
            speed=settings.speed,
            prefill_tokens_per_s=settings.prefill_tokens_per_s,
            max_running=self.max_running,
            max_queued=settings.max_queued_requests,
            pool_tokens=settings.max_total_tokens,
            prefix_cache=self.prefix_cache,
            now=self._loop.time(),
            tokens_per_step=settings.accept_length,
        )
        self.reporter = Reporter(self.scheduler, settings, log, now=self._loop.time())
        self._board = LoadBoard(self.scheduler, publish_steps=settings.publish_interval)

    # ---- requests

    def submit(self, request: GenerationRequest, plan: TextPlan, *, aborted_halfway: bool = False) -> Generation:
        """Start a generation (which the server itself will abort halfway, if told so).

        Raises BadRequestError: duplicate rid, too long for the context.
        """
        if request.rid in self.generations:
            raise BadRequestError("Duplicate request ID detected")
        cap = most_new_tokens(request, self.settings.context_length)
        wanted = min(plan.tokens_wanted, cap)
        ends_by = FinishKind.STOP if plan.tokens_wanted <= cap else FinishKind.LENGTH
        if aborted_halfway:
            wanted, ends_by = max(1, wanted // 2), FinishKind.ABORT
        now = self._loop.time()
        sequence = Sequence(
            rid=request.rid,
            prompt_tokens=len(request.prompt_ids),
            target_tokens=wanted,
            ends_by=ends_by,
            max_new_tokens=cap,
            arrived_at=now,
        )
        generation = Generation(request, plan, sequence, self._loop.create_future(), time.time())
        if self.settings.instant:
            self._answer_at_once(generation, now)
            return generation
        sequence.prompt_chars = len(request.prompt)
        sequence.blocks = PrefixCache.blocks_of(request.prompt)
        self.generations[request.rid] = generation
        self.on_busy()
        self._settle(self.scheduler.submit(sequence, now))
        return generation

    def generated_of(self, generation: Generation) -> int:
        """Tokens that a request has until now."""
        self._settle(self.scheduler.advance(self._loop.time()))
        return self.scheduler.generated_of(generation.sequence)

    def token_s(self) -> float:
        """Real seconds that one request takes for a token, as things are now; 0.0 while nothing runs."""
        running = self.scheduler.running_count
        speed = self.settings.curve.at(running) * self.settings.speed
        return running / speed if speed else 0.0

    def abort(self, rid: str) -> int:
        """End the requests whose rid begins with `rid`, if `rid` itself is known here. Returns how many ended."""
        if not rid or rid not in self.generations:
            return 0
        self.counts.aborted += 1
        return self._abort([one for name, one in self.generations.items() if name.startswith(rid)])

    def abort_all(self) -> int:
        self.counts.aborted += 1
        return self._abort(list(self.generations.values()))

    def _abort(self, generations: list[Generation]) -> int:
        if self._halts - {PAUSE}:
            # a scheduler that hangs reads its aborts when it wakes up
            self._late_aborts |= {generation.sequence.rid for generation in generations}
            return len(generations)
        waiting = set(map(id, self.scheduler.waiting))
        # the queue first, as SGLang does: or else the places of aborted ones would be taken by others to abort
        for generation in sorted(generations, key=lambda one: id(one.sequence) not in waiting):
            self._settle(self.scheduler.abort(generation.sequence, self._loop.time()))
        return len(generations)

    # ---- control

    def halt(self, reason: str) -> None:
        """Freeze for a reason (a hang, a pause, a stopped child); halts of several reasons add up."""
        self._halts.add(reason)
        self._settle(self.scheduler.halt(self._loop.time()))

    def go_on(self, reason: str) -> None:
        self._halts.discard(reason)
        if not self._halts - {PAUSE} and self._late_aborts:
            late, self._late_aborts = self._late_aborts, set()
            self._abort([self.generations[rid] for rid in late if rid in self.generations])
        if not self._halts:
            self._settle(self.scheduler.go_on(self._loop.time()))

    @property
    def paused(self) -> bool:
        return PAUSE in self._halts

    @property
    def halted(self) -> bool:
        return bool(self._halts)

    def pause(self, mode: str) -> None:
        """SGLang's three modes: abort, in_place, retract."""
        if mode == "abort":
            self.abort_all()
        self.halt(PAUSE)
        if mode == "retract":
            self._settle(self.scheduler.requeue_running(self._loop.time()))

    def flush_cache(self) -> bool:
        """Forget cached prefixes. False if requests run (or wait, unless paused)."""
        if self.scheduler.running_count or (self.scheduler.waiting and not self.paused):
            return False
        self.prefix_cache.clear()
        return True

    def slow_down(self, factor: float) -> None:
        self._settle(self.scheduler.set_slowdown(factor, self._loop.time()))

    def limit_running(self) -> None:
        """What SGLang does with a speculative algorithm and no --max-running-requests."""
        self.max_running = self.scheduler.max_running = min(self.max_running, SPECULATIVE_MAX_RUNNING)

    def reset_counters(self) -> None:
        self.counts = RequestCounts()
        self.scheduler.reset_totals()
        self.reporter.reset_counters()

    # ---- what the scheduler tells

    def load(self) -> LoadSnapshot:
        """What the scheduler published last."""
        now = self._loop.time()
        self._settle(self.scheduler.advance(now))
        return self._board.read(now)

    def read_gauges(self) -> Gauges:
        """The gauges of the last report; an idle scheduler corrects them."""
        now = self._loop.time()
        self._settle(self.scheduler.advance(now))
        if not self.halted:
            self.reporter.correct_if_idle(now)
        return self.reporter.gauges

    # ---- inside

    def _answer_at_once(self, generation: Generation, now: float) -> None:
        sequence = generation.sequence
        sequence.generated = sequence.target_tokens
        sequence.admitted_at = sequence.first_token_at = sequence.finished_at = now
        sequence.finish = Finish.by(sequence.ends_by)
        totals = self.scheduler.totals
        totals.decoded += sequence.generated - 1
        totals.prefill_computed += sequence.prompt_tokens
        totals.moments[0] += sequence.generated - 1
        totals.moments[1] += sequence.generated - 1
        totals.moments[5] += sequence.generated - 1
        self.counts.count_finished(sequence, stream=generation.request.stream)
        generation.done.set_result(None)

    def _settle(self, finished: list[Sequence]) -> None:
        """After every move of the scheduler: answer what finished, report, wake at the next event."""
        for sequence in finished:
            generation = self.generations.pop(sequence.rid, None)
            if generation is None:
                continue
            self.counts.count_finished(sequence, stream=generation.request.stream)
            if not generation.done.done():
                generation.done.set_result(None)
        self.reporter.tell_events()
        now = self._loop.time()
        if not self.halted:
            self.reporter.report_if_due(now)
        self._arm(now)

    def _arm(self, now: float) -> None:
        at = self.scheduler.next_event_at()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if at is None:
            return
        if self.scheduler.running:
            at = min(at, self.reporter.next_report_at(now))
        self._timer = self._loop.call_at(max(at, now), self._wake)

    def _wake(self) -> None:
        self._timer = None
        self._settle(self.scheduler.advance(self._loop.time()))

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
