"""The running scheduler: drives batching.Scheduler on the event loop's clock, knows requests by rid, keeps counts and gauges.

Leaves HTTP to the endpoints, the words of answers to texts.py and answers.py.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Callable
from dataclasses import dataclass, replace

from backend.simulator.batching import Scheduler
from backend.simulator.counters import Gauges, RequestCounts
from backend.simulator.generation import BadRequestError, GenerationRequest
from backend.simulator.log import Log
from backend.simulator.prefix_cache import PrefixCache
from backend.simulator.sequences import Finish, FinishKind, Sequence
from backend.simulator.settings import SPECULATIVE_MAX_RUNNING, Settings
from backend.simulator.texts import TextPlan

PAUSE = "pause"
"""The reason of a halt that clients ask for; aborts work during it."""
_MIN_REPORT_S = 0.2
_IDLE_PUBLISH_S = 1.0
_IDLE_REPORT_S = 30.0


@dataclass(slots=True, eq=False)
class Generation:
    """A request in the engine: what was asked, what will be written, and when it is done."""

    request: GenerationRequest
    plan: TextPlan
    sequence: Sequence
    done: asyncio.Future[None]
    received_at: float
    """Unix time in seconds."""


@dataclass(frozen=True, slots=True)
class LoadSnapshot:
    """What the scheduler last published for /v1/loads; `published_at` is Unix time: the heartbeat."""

    published_at: float
    running: int
    queued: int
    queued_tokens: int
    used_tokens: int
    moments: tuple[float, ...] | None
    prefill_tokens: int
    prefill_busy_us: int


class Engine:
    """Requests by rid on a simulated GPU. Use inside one event loop."""

    def __init__(self, settings: Settings, log: Log) -> None:
        self.settings = settings
        self.log = log
        self.counts = RequestCounts()
        self.gauges = Gauges()
        self.gauges_frozen = False
        self.max_running = settings.max_running
        self.generations: dict[str, Generation] = {}
        self.on_busy: Callable[[], None] = lambda: None
        self.started_at = time.time()
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
        self._reported_steps = 0.0
        self._reported_decoded = 0
        self._reported_at = self._decode_reported_at = self._loop.time()
        self._published_at = -math.inf
        self._snapshot = self._take_snapshot()

    # ---- requests

    def submit(self, request: GenerationRequest, plan: TextPlan) -> Generation:
        """Start a generation. Raises BadRequestError (duplicate rid, too long for the context)."""
        if request.rid in self.generations:
            raise BadRequestError("Duplicate request ID detected")
        cap = self._cap_of(request)
        wanted = min(plan.tokens_wanted, cap)
        now = self._loop.time()
        sequence = Sequence(
            rid=request.rid,
            prompt_tokens=len(request.prompt_ids),
            target_tokens=wanted,
            ends_by=FinishKind.STOP if plan.tokens_wanted <= cap else FinishKind.LENGTH,
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
        self._reported_decoded = 0

    # ---- what the scheduler tells

    def load(self) -> LoadSnapshot:
        """The last published snapshot: fresh within some steps, or old if the scheduler is halted."""
        now = self._loop.time()
        self._settle(self.scheduler.advance(now))
        steps = self.scheduler.seconds_of_steps(self.settings.publish_interval)
        interval = _IDLE_PUBLISH_S if self.scheduler.idle else min(steps, 1.0)
        if not self.halted and now - self._published_at >= interval:
            self._snapshot = self._take_snapshot()
            self._published_at = now
        return self._snapshot

    def read_gauges(self) -> Gauges:
        """The gauges of the last report; an idle scheduler corrects them."""
        now = self._loop.time()
        self._settle(self.scheduler.advance(now))
        if self.halted or self.gauges_frozen:
            return self.gauges
        stale = now - self._reported_at >= _IDLE_REPORT_S
        if self.scheduler.idle and (self.gauges.running or self.gauges.queued or self.gauges.gen_throughput or stale):
            self._report(now, throughput=0.0)
        return self.gauges

    def _take_snapshot(self) -> LoadSnapshot:
        scheduler = self.scheduler
        totals = scheduler.totals
        return LoadSnapshot(
            published_at=time.time(),
            running=scheduler.running_count,
            queued=len(scheduler.waiting),
            queued_tokens=sum(sequence.prompt_tokens for sequence in scheduler.waiting),
            used_tokens=scheduler.used_tokens,
            moments=tuple(totals.moments) if totals.moments[0] else None,
            prefill_tokens=totals.prefill_computed,
            prefill_busy_us=totals.prefill_busy_us,
        )

    # ---- inside

    def _cap_of(self, request: GenerationRequest) -> int:
        context, prompt_tokens = self.settings.context_length, len(request.prompt_ids)
        if prompt_tokens >= context:
            raise BadRequestError(
                f"The input ({prompt_tokens} tokens) is longer than the model's context length ({context} tokens)."
            )
        if request.max_new_tokens is None:
            return context - prompt_tokens
        if prompt_tokens + request.max_new_tokens > context:
            raise BadRequestError(
                f"Requested token count exceeds the model's maximum context length of {context} tokens. You requested a "
                f"total of {prompt_tokens + request.max_new_tokens} tokens: {prompt_tokens} tokens from the input messages "
                f"and {request.max_new_tokens} tokens for the completion. Please reduce the number of tokens in the input "
                "messages or the completion to fit within the limit."
            )
        return request.max_new_tokens

    def _answer_at_once(self, generation: Generation, now: float) -> None:
        sequence = generation.sequence
        sequence.generated = sequence.target_tokens
        sequence.admitted_at = sequence.first_token_at = sequence.finished_at = now
        sequence.finish = Finish(sequence.ends_by)
        totals = self.scheduler.totals
        totals.decoded += sequence.generated - 1
        totals.prefill_computed += sequence.prompt_tokens
        totals.moments[0] += sequence.generated - 1
        totals.moments[1] += sequence.generated - 1
        totals.moments[5] += sequence.generated - 1
        self._count(generation)
        generation.done.set_result(None)

    def _settle(self, finished: list[Sequence]) -> None:
        """After every move of the scheduler: answer what finished, report, wake at the next event."""
        for sequence in finished:
            generation = self.generations.pop(sequence.rid, None)
            if generation is None:
                continue
            self._count(generation)
            if not generation.done.done():
                generation.done.set_result(None)
        self._tell_prefills()
        now = self._loop.time()
        if not self.halted:
            interval = self.settings.decode_log_interval
            steps = self.scheduler.decode_steps - self._reported_steps
            if steps >= interval and now - self._reported_at >= _MIN_REPORT_S:
                self._report_decode(now)
        self._arm(now)

    def _arm(self, now: float) -> None:
        at = self.scheduler.next_event_at()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if at is None:
            return
        if self.scheduler.running:
            steps_left = self.settings.decode_log_interval - (self.scheduler.decode_steps - self._reported_steps)
            report_at = now + max(self.scheduler.seconds_of_steps(max(steps_left, 0.0)), 0.001)
            at = min(at, max(report_at, self._reported_at + _MIN_REPORT_S))
        self._timer = self._loop.call_at(max(at, now), self._wake)

    def _wake(self) -> None:
        self._timer = None
        self._settle(self.scheduler.advance(self._loop.time()))

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _tell_prefills(self) -> None:
        scheduler = self.scheduler
        for report in scheduler.prefill_reports:
            rate = report.new_tokens / report.seconds if report.seconds > 0 else 0.0
            usage = scheduler.used_tokens / scheduler.pool_tokens
            self.log.write(
                f"Prefill batch, #new-seq: {report.new_sequences}, #new-token: {report.new_tokens}, #cached-token: "
                f"{report.cached_tokens}, token usage: {usage:.2f}, #running-req: {report.running}, #queue-req: "
                f"{report.queued}, #pending-token: {report.pending_tokens}, cuda graph: False, "
                f"input throughput (token/s): {rate:.2f}"
            )
            total = report.new_tokens + report.cached_tokens
            if not self.gauges_frozen:
                self.gauges = replace(
                    self.gauges,
                    running=report.running + report.new_sequences,
                    queued=report.queued,
                    cache_hit_rate=report.cached_tokens / total if total else 0.0,
                    token_usage=round(usage, 2),
                    used_tokens=scheduler.used_tokens,
                )
        scheduler.prefill_reports.clear()
        for full in scheduler.retract_reports:
            self.log.write(
                f"KV cache pool is full. Retract requests. #retracted_reqs: {full.retracted}, #new_tokens_gained: "
                f"{full.tokens_gained}, #new_token_ratio: {full.ratio_before:.4f} -> {full.ratio_after:.4f}"
            )
        scheduler.retract_reports.clear()

    def _report_decode(self, now: float) -> None:
        decoded = self.scheduler.decoded_total
        throughput = max(decoded - self._reported_decoded, 0) / max(now - self._decode_reported_at, 1e-9)
        self._reported_decoded = decoded
        # moved by decode reports only: the first window after idle time includes that time, as SGLang's does
        self._decode_reported_at = now
        self._reported_steps = self.scheduler.decode_steps
        self._report(now, throughput=throughput)
        used, running = self.scheduler.used_tokens, len(self.scheduler.running)
        speculation = ""
        if self.settings.speculative_algorithm:
            accept = self.settings.accept_length
            speculation = f"accept len: {accept:.2f}, accept rate: {(accept - 1) / 3:.2f}, "
        self.log.write(
            f"Decode batch, #running-req: {running}, #token: {used}, token usage: "
            f"{used / self.scheduler.pool_tokens:.2f}, {speculation}cuda graph: True, gen throughput (token/s): "
            f"{throughput:.2f}, #queue-req: {len(self.scheduler.waiting)}"
        )

    def _report(self, now: float, *, throughput: float) -> None:
        self._reported_at = now
        if self.gauges_frozen:
            return
        scheduler = self.scheduler
        used = scheduler.used_tokens
        self.gauges = replace(
            self.gauges,
            running=scheduler.running_count,
            queued=len(scheduler.waiting),
            gen_throughput=throughput,
            used_tokens=used,
            token_usage=round(used / scheduler.pool_tokens, 2),
            sum_seq_lens=used,
            accept_length=self.settings.accept_length if self.settings.speculative_algorithm else 0.0,
            retracted=sum(1 for sequence in scheduler.waiting if sequence.retractions),
            new_token_ratio=scheduler.new_token_ratio,
        )

    def _count(self, generation: Generation) -> None:
        sequence, counts = generation.sequence, self.counts
        if sequence.finish is not None and sequence.finish.was_waiting:
            return
        stream = counts.of_stream(generation.request.stream)
        stream.requests += 1
        stream.prompt_tokens += sequence.prompt_tokens
        stream.generation_tokens += sequence.generated
        counts.cached_tokens += sequence.cached_tokens
        counts.prompt_lengths.observe(sequence.prompt_tokens)
        counts.generation_lengths.observe(sequence.generated)
        end = sequence.finished_at if sequence.finished_at is not None else self._loop.time()
        first = sequence.first_token_at if sequence.first_token_at is not None else end
        stream.time_to_first_token.observe(first - sequence.arrived_at)
        stream.e2e_latency.observe(end - sequence.arrived_at)
        if sequence.generated > 1:
            pace = (end - first) / (sequence.generated - 1)
            stream.time_per_output_token.observe(pace)
            counts.inter_token.observe(pace, sequence.generated - 1)
        if sequence.admitted_at is not None:
            counts.queue_time.observe(sequence.admitted_at - sequence.arrived_at)
