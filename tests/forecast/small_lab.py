"""A simulator of jobs of its own for tests and the bench: slots, log-normal lengths, a server that drifts and falls over.

Steps of one second; every request in flight makes the same share of T(n) tokens a second. Plain on purpose: it owes nothing to
the forecaster's model but the rules of a job.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np

from backend.forecast.observation import BudgetStop, Observation, SpeedHistory, count_dataset
from backend.records import DatasetState

CURVE = ((1, 60.0), (4, 200.0), (8, 360.0), (16, 600.0), (32, 900.0), (64, 1200.0), (128, 1400.0))
BIN_S = 10


@dataclass(slots=True)
class Plan:
    """One dataset: lengths of its samples in order, and its limits."""

    name: str
    lengths: np.ndarray
    token_budget: int | None = None
    max_new_tokens: int = 8192


@dataclass(slots=True)
class Moment:
    """What was seen, and how long it took from there."""

    observation: Observation
    remaining_s: float


@dataclass(slots=True)
class Job:
    """A job played second by second."""

    plans: list[Plan]
    concurrency: int
    stop: BudgetStop = BudgetStop.DRAIN
    speed_sd: float = 0.03
    outage_chance: float = 0.0  # a second
    rng: np.random.Generator = field(default_factory=lambda: np.random.default_rng(0))

    def play(self, moments_s: list[float] | None = None, shares: tuple[float, ...] = (0.02, 0.1, 0.3, 0.6)) -> list[Moment]:
        """Observations at these seconds, or at these shares of the whole."""
        if moments_s is None:
            state = self.rng.bit_generator.state
            end, _ = self._run([])
            self.rng.bit_generator.state = state
            moments_s = [end * share for share in shares]
        end, seen = self._run(moments_s)
        return [Moment(observation, end - observation.active_s) for observation in seen]

    def _run(self, moments_s: list[float]) -> tuple[float, list[Observation]]:
        rng, wanted, seen = self.rng, sorted(moments_s), []
        n, speeds = zip(*((0, 0.0), *CURVE), strict=True)
        finished: list[list[int]] = [[] for _ in self.plans]
        started, current, made = [0] * len(self.plans), 0, {}
        redo: list[int] = []
        history: list[tuple[float, int]] = []
        drift, down_s, second = 0.0, 0, 0
        while current < len(self.plans):
            if wanted and second >= wanted[0]:
                wanted.pop(0)
                seen.append(self._observe(second=second, current=current, finished=finished, made=made, history=history))
            plan = self.plans[current]
            spent = plan.token_budget is not None and sum(finished[current]) >= plan.token_budget
            if spent and self.stop is BudgetStop.CANCEL:
                made.clear()
            while len(made) < self.concurrency and not spent and (redo or started[current] < len(plan.lengths)):
                if redo:
                    made[redo.pop()] = 0.0
                else:
                    made[started[current]] = 0.0
                    started[current] += 1
            if not made and (spent or started[current] == len(plan.lengths)):
                current, redo = current + 1, []
                continue
            drift = drift * 0.999 + rng.normal(0, self.speed_sd * math.sqrt(1 - 0.999**2))
            if down_s == 0 and rng.random() < self.outage_chance:
                down_s = int(rng.uniform(100, 300))
                redo, made = list(made), {}
            speed = float(np.interp(len(made), n, speeds)) * math.exp(drift) if down_s == 0 else 0.0
            if down_s:
                down_s -= 1
            history.append((speed, len(made)))
            for sample in list(made):
                made[sample] += speed / max(len(made), 1)
                if made[sample] >= plan.lengths[sample]:
                    finished[current].append(int(plan.lengths[sample]))
                    del made[sample]
            second += 1
        return float(second), seen

    def _observe(
        self,
        *,
        second: int,
        current: int,
        finished: list[list[int]],
        made: dict[int, float],
        history: list[tuple[float, int]],
    ) -> Observation:
        whole = len(history) // BIN_S * BIN_S
        bins = np.array(history[:whole]).reshape(-1, BIN_S, 2).mean(axis=1) if whole else np.zeros((0, 2))
        datasets = []
        for i, plan in enumerate(self.plans):
            state = DatasetState.DONE if i < current else DatasetState.RUNNING if i == current else DatasetState.WAITING
            datasets.append(
                count_dataset(
                    plan.name,
                    state,
                    prompts=len(plan.lengths),
                    token_budget=plan.token_budget,
                    max_new_tokens=plan.max_new_tokens,
                    finished_lengths=finished[i],
                    in_flight_tokens=made.values() if i == current else (),
                )
            )
        return Observation(
            active_s=float(second),
            concurrency=self.concurrency,
            datasets=tuple(datasets),
            history=SpeedHistory(float(BIN_S), bins[:, 0], bins[:, 1]),
            speed_curve=CURVE,
            budget_stop=self.stop,
            overlap=False,
        )


def lognormal_lengths(rng: np.random.Generator, count: int, median: float, log_sd: float, cap: int = 8192) -> np.ndarray:
    """Whole tokens, at least 1 and at most the cap."""
    return np.clip(np.round(np.exp(rng.normal(math.log(median), log_sd, count))), 1, cap)


def made_job(seed: int, stop: BudgetStop = BudgetStop.DRAIN, *, unsteady: bool = False) -> Job:
    """One to three datasets, bound by samples, by budget, or by whichever comes first."""
    rng = np.random.default_rng(seed)
    plans = []
    for i in range(int(rng.integers(1, 4))):
        median, log_sd = float(rng.uniform(150, 900)), float(rng.uniform(0.3, 0.9))
        count = int(rng.uniform(500, 2000) * 400 / median)
        lengths = lognormal_lengths(rng, count, median, log_sd)
        budget = int(lengths.sum() * rng.uniform(0.4, 1.5)) if seed % 3 else None
        plans.append(Plan(f"B{i + 1}", lengths, budget))
    concurrency = int(rng.choice([16, 32, 64]))
    return Job(plans, concurrency, stop, 0.1 if unsteady else 0.03, 1 / 3600 if unsteady else 0.0, rng)
