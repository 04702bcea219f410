"""A sweep in virtual time: the simulator's scheduler, made unsteady, and a driver that keeps the plan's requests in flight."""

from __future__ import annotations

import math
import random
from dataclasses import dataclass, field

from backend.job.sweep_order import SweepOrder
from backend.job.sweep_plan import Look, ReplicaLook, SweepPlan
from backend.simulator.batching import Scheduler
from backend.simulator.curve import DEFAULT_CURVE, SpeedCurve
from backend.simulator.prefix_cache import PrefixCache
from backend.simulator.sequences import FinishKind, Sequence
from backend.sweeps import SweepLevel, SweepState

CAPACITY_TOKENS = 400_000
PUBLISHED_STEPS = 15


@dataclass
class SweptServer:
    """One server, its requests and a clock. Speed moves by `movement` (log sd) with a memory of `memory_s`."""

    seed: int
    curve: str = DEFAULT_CURVE
    movement: float = 0.05
    memory_s: float = 8.0
    mean_tokens: float = 600.0
    at_s: float = 0.0
    life: str = "first"
    concurrency: int = 48
    prompts: int = 1_000_000
    prompt_tokens: int = 300
    max_running: int = 256
    counter_stands: bool = False
    finished: list[Sequence] = field(default_factory=list)
    aborted: int = 0

    def __post_init__(self) -> None:
        self._rng = random.Random(self.seed)
        self._log_speed = 0.0
        self._flying: list[Sequence] = []
        self._published = (0.0, 0.0)
        self._made = 0
        self.scheduler = Scheduler(
            curve=SpeedCurve.parse(self.curve),
            speed=1.0,
            prefill_tokens_per_s=20_000,
            max_running=self.max_running,
            max_queued=None,
            pool_tokens=CAPACITY_TOKENS,
            prefix_cache=PrefixCache(enabled=False),
            now=0.0,
        )
        self._fill()

    @property
    def in_flight(self) -> int:
        return len(self._flying)

    def pass_time(self, seconds: float, step_s: float = 0.25) -> None:
        """Answers come and slots are filled again."""
        for _ in range(round(seconds / step_s)):
            self.at_s += step_s
            memory = math.exp(-step_s / self.memory_s)
            self._log_speed = memory * self._log_speed + self._rng.gauss(0, self.movement * math.sqrt(1 - memory**2))
            self._took(self.scheduler.set_slowdown(math.exp(-self._log_speed), self.at_s))
            self._fill()
            self._publish(step_s)

    def abort_newest(self, keep: int) -> None:
        """As the slots do."""
        for sequence in self._flying[keep:]:
            self.aborted += 1
            self._took([one for one in self.scheduler.abort(sequence, self.at_s) if one is not sequence])
        self._flying = self._flying[:keep]

    def in_flight_ids(self) -> list[str]:
        """The oldest first."""
        return [one.rid for one in self._flying]

    def look(self, obstacle: str | None = None) -> Look:
        """What the supervisor would see now."""
        first = [(s.arrived_at, s.first_token_at - s.arrived_at) for s in self.finished if s.first_token_at is not None]
        return Look(self.at_s, self.in_flight, (self.replica_look("0", self.life),), obstacle, first)

    def replica_look(self, name: str, life: str) -> ReplicaLook:
        """This server as a replica of that name."""
        counted_at_s, tokens = self._published
        return ReplicaLook(
            name=name,
            life=life,
            counted_at_s=counted_at_s,
            tokens=tokens,
            held=False,
            running=float(self.scheduler.running_count),
            queued=float(len(self.scheduler.waiting)),
            token_usage=self.scheduler.used_tokens / CAPACITY_TOKENS,
            kv_capacity_tokens=CAPACITY_TOKENS,
            first_token_s=None,
        )

    def _publish(self, step_s: float) -> None:
        """As often as SGLang does: every 15 decode steps, as far as they can be told apart here."""
        if self.counter_stands:
            return
        if self.at_s - self._published[0] >= self.scheduler.seconds_of_steps(PUBLISHED_STEPS) - step_s / 2:
            self._published = (self.at_s, float(self.scheduler.totals.moments[5]))

    def _fill(self) -> None:
        while len(self._flying) < self.concurrency and self.prompts > 0:
            self.prompts -= 1
            tokens = max(2, round(self._rng.lognormvariate(math.log(self.mean_tokens) - 0.5, 1.0)))
            self._made += 1
            one = Sequence(str(self._made), self.prompt_tokens, tokens, FinishKind.STOP, 32_000, self.at_s)
            self._flying.append(one)
            self._took(self.scheduler.submit(one, self.at_s))

    def _took(self, finished: list[Sequence]) -> None:
        for one in finished:
            if one in self._flying:
                self._flying.remove(one)
                self.finished.append(one)


def sweep(server: SweptServer, order: SweepOrder, *, limit_s: float = 4_000.0) -> tuple[list[SweepLevel], SweepState]:
    """The whole sweep, a look a second."""
    plan = SweepPlan(order, {"0": server.life}, server.at_s)
    levels: list[SweepLevel] = []
    while server.at_s < limit_s:
        server.concurrency = plan.concurrency
        server.pass_time(1.0)
        step = plan.step(server.look())
        if step.abort_beyond is not None:
            server.abort_newest(step.abort_beyond)
        if step.level is not None:
            levels.append(step.level)
        if step.ended is not None:
            return levels, step.ended[0]
    raise AssertionError(f"the sweep still measures {plan.concurrency} after {limit_s} s")
