"""PURE: how a sweep goes from level to level: what each look at the engine leads to, and what a level came to.

Levels ascend, because requests then simply go on from level to level: none is aborted and every sample counts. Only the way
down to the first level costs something: what is in flight finishes (`drain`), or the newest requests are aborted, which have
made the least. Aborting at the end of each level instead would keep the short answers and throw the long ones away.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from statistics import fmean, median
from typing import Final

from backend.job.sweep_order import SweepOrder
from backend.job.sweep_rate import CounterMeter, Rate
from backend.sweeps import SweepLevel, SweepState

KNOWN_SHARE: Final = 0.03  # of the rate: its 95 % interval reaches no further
LEAST_S: Final = 30.0  # of a measurement, however steady it seems
FILL_LIMIT_S: Final = 60.0  # in which the requests of a level must be started
PATIENCE_S: Final = 10.0  # a queue that became no shorter for so long is not that of a level's first prompts
SETTLE_S: Final = 1.0  # after the last of them has left the queue
FULL_SHARE: Final = 0.9  # of the level's requests that are in flight on average, else it is not this level that was measured


class Stage(StrEnum):
    """What a running sweep does."""

    LOWERING = "lowering"  # more requests are in flight than the first level has
    FILLING = "filling"  # the level's requests are started, and their prompts computed
    MEASURING = "measuring"


@dataclass(frozen=True, slots=True)
class ReplicaLook:
    """One replica at one moment. None is what it does not tell."""

    name: str
    life: str
    counted_at_s: float  # when its counter was as `tokens` says
    tokens: float | None  # generated in this life
    held: bool  # the counter comes only every few seconds: a count that has not changed may be an old one
    running: float | None
    queued: float | None
    token_usage: float | None  # 0..1
    kv_capacity_tokens: float | None
    first_token_s: float | None  # mean of requests that finished lately


@dataclass(frozen=True, slots=True)
class Look:
    """Everything that a step depends on. Times are seconds of one clock that is never set."""

    at_s: float
    in_flight: int  # our requests
    replicas: tuple[ReplicaLook, ...]  # those that are ready
    obstacle: str | None = None  # why the sweep cannot go on
    first_tokens: Sequence[tuple[float, float]] = ()  # of answers: (request started at, seconds to its first token)


@dataclass(frozen=True, slots=True)
class Step:
    """What follows from a look. Nothing for most."""

    level: SweepLevel | None = None  # was measured
    abort_beyond: int | None = None  # abort the newest requests until so many are in flight
    ended: tuple[SweepState, str | None] | None = None  # the sweep is over, and why before its last level


@dataclass(slots=True)
class _Measurement:
    """What is gathered at one level."""

    since_s: float
    meter: CounterMeter
    in_flight: list[int] = field(default_factory=list)
    running: list[float] = field(default_factory=list)
    usage: list[float] = field(default_factory=list)
    held: list[float] = field(default_factory=list)  # tokens of the KV pools in use, by running requests
    engine_first_token_s: list[float] = field(default_factory=list)

    def add(self, look: Look) -> None:
        self.in_flight.append(look.in_flight)
        for replica in look.replicas:
            if replica.tokens is not None and replica.counted_at_s >= self.since_s:
                self.meter.add(replica.name, replica.counted_at_s, replica.tokens, held=replica.held)
            if replica.first_token_s is not None:
                self.engine_first_token_s.append(replica.first_token_s)
        running = [r.running for r in look.replicas if r.running is not None]
        if len(running) == len(look.replicas):
            self.running.append(sum(running))
        usages = [r.token_usage for r in look.replicas if r.token_usage is not None]
        if usages:
            self.usage.append(max(usages))
        held = [r.token_usage * r.kv_capacity_tokens for r in look.replicas if r.token_usage and r.kv_capacity_tokens]
        if running and sum(running) > 0 and len(held) == len(look.replicas):
            self.held.append(sum(held) / sum(running))


class SweepPlan:
    """One sweep at work. `concurrency` is what the slots shall have now."""

    def __init__(self, order: SweepOrder, lives: Mapping[str, str], at_s: float) -> None:
        """`lives`: which life of which replica is measured; another one, or one less, ends the sweep."""
        self.order = order
        self.stage = Stage.LOWERING
        self.since_s = at_s  # of the stage
        self._lives = dict(lives)
        self._place = 0
        self._aborted = order.drain
        self._full_since_s: float | None = None
        self._shortest_queue: tuple[float, float] | None = None  # requests, when it was first so short
        self._measurement: _Measurement | None = None

    @property
    def concurrency(self) -> int:
        """The level."""
        return self.order.levels[self._place]

    @property
    def rate(self) -> Rate | None:
        """What is known of this level so far."""
        return self._measurement.meter.rate() if self._measurement else None

    def step(self, look: Look) -> Step:
        """What follows from this look. Call it about once a second, until it says that the sweep has ended."""
        problem = look.obstacle or self._changed_replica(look)
        if problem is not None:
            return Step(ended=(SweepState.ENDED, problem))
        if self.stage is Stage.LOWERING:
            if look.in_flight > self.concurrency:
                beyond, self._aborted = None if self._aborted else self.concurrency, True
                return Step(abort_beyond=beyond)
            self._enter(Stage.FILLING, look.at_s)
        if self.stage is Stage.FILLING:
            return self._fill(look)
        return self._measure(look)

    def _enter(self, stage: Stage, at_s: float) -> None:
        self.stage, self.since_s = stage, at_s
        self._full_since_s = self._shortest_queue = None
        self._measurement = _Measurement(at_s, CounterMeter(self._lives)) if stage is Stage.MEASURING else None

    def _fill(self, look: Look) -> Step:
        if look.in_flight < self.concurrency:
            self._full_since_s = None
            if look.at_s - self.since_s > FILL_LIMIT_S:
                return Step(ended=(SweepState.ENDED, self._too_few(look.in_flight)))
            return Step()
        if self._full_since_s is None:
            self._full_since_s, self._shortest_queue = look.at_s, None
        if self._is_settled(look, self._full_since_s):
            self._enter(Stage.MEASURING, look.at_s)
            return self._measure(look)
        return Step()

    def _is_settled(self, look: Look, full_since_s: float) -> bool:
        """Whether the prompts of the level's first requests are computed: those that a full pool keeps waiting left aside."""
        if any(replica.counted_at_s < full_since_s for replica in look.replicas):
            return look.at_s - full_since_s > PATIENCE_S
        queue = sum(replica.queued or 0 for replica in look.replicas)
        if self._shortest_queue is None or queue < self._shortest_queue[0]:
            self._shortest_queue = (queue, look.at_s)
        return look.at_s - self._shortest_queue[1] >= (SETTLE_S if queue == 0 else PATIENCE_S)

    def _measure(self, look: Look) -> Step:
        measurement = self._measurement
        assert measurement is not None, "this stage has one"
        measurement.add(look)
        seconds, rate = look.at_s - measurement.since_s, measurement.meter.rate()
        known = rate is not None and rate.is_known_within(KNOWN_SHARE) and rate.measured_s >= LEAST_S
        if not known and seconds < self.order.level_limit_s:
            return Step()
        if rate is None or rate.tokens_per_s <= 0:
            if seconds < self.order.level_limit_s + PATIENCE_S:
                return Step()  # a short time on a busy machine may hold no two looks
            words = f"no token was counted in {seconds:.0f} s with {self.concurrency} requests in flight"
            return Step(ended=(SweepState.ENDED, words))
        busy = fmean(measurement.in_flight)
        if busy < FULL_SHARE * self.concurrency:
            return Step(ended=(SweepState.ENDED, self._too_few(busy)))
        level = _level_of(self.concurrency, measurement, rate, known=known, first_tokens=look.first_tokens)
        if self._place + 1 == len(self.order.levels):
            return Step(level=level, ended=(SweepState.FINISHED, None))
        self._place += 1
        self._enter(Stage.FILLING, look.at_s)
        return Step(level=level)

    def _changed_replica(self, look: Look) -> str | None:
        now = {replica.name: replica.life for replica in look.replicas}
        for name, life in self._lives.items():
            if now.get(name) != life:
                return f"replica {name} ended or was started again"
        more = sorted(now.keys() - self._lives.keys())
        return f"replica {more[0]} became ready: the levels before were measured without it" if more else None

    def _too_few(self, in_flight: float) -> str:
        return (
            f"only {in_flight:.0f} of {self.concurrency} requests were in flight: datasets that run have no more prompts, or "
            f"their limits admit no more"
        )


def _level_of(
    concurrency: int, measurement: _Measurement, rate: Rate, *, known: bool, first_tokens: Sequence[tuple[float, float]]
) -> SweepLevel:
    ours = [seconds for started_at_s, seconds in first_tokens if started_at_s >= measurement.since_s]
    theirs = measurement.engine_first_token_s
    return SweepLevel(
        concurrency=concurrency,
        tokens_per_s=rate.tokens_per_s,
        half_width_tokens_per_s=rate.half_width,
        known=known,
        measured_s=rate.measured_s,
        running=fmean(measurement.running) if measurement.running else None,
        first_token_s=median(ours) if ours else fmean(theirs) if theirs else None,
        token_usage=fmean(measurement.usage) if measurement.usage else None,
        context_tokens=fmean(measurement.held) if measurement.held else None,
    )
