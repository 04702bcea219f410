"""Observations for tests, built from few words."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from backend.forecast.observation import BudgetStop, DatasetNow, Observation, SpeedHistory, count_dataset
from backend.records import DatasetState

CURVE = ((1.0, 60.0), (8.0, 370.0), (32.0, 900.0), (64.0, 1000.0), (128.0, 1000.0))


def lengths(count: int, mean: float = 500.0, log_sd: float = 0.5, seed: int = 1) -> np.ndarray:
    """Log-normal lengths whose mean is about right."""
    rng = np.random.default_rng(seed)
    return np.round(mean * np.exp(rng.normal(-(log_sd**2) / 2, log_sd, count))).clip(1)


def dataset(name: str = "B1", state: str = "running", **more: Any) -> DatasetNow:
    """10,000 prompts, 2,000 of them finished and 64 in flight, unless told otherwise."""
    more.setdefault("prompts", 10_000)
    more.setdefault("token_budget", None)
    more.setdefault("max_new_tokens", 8192)
    if state == "running":
        more.setdefault("finished_lengths", lengths(2000))
        more.setdefault("in_flight_tokens", np.linspace(5, 600, 64).tolist())
    return count_dataset(name, DatasetState(state), **more)


def steady(tokens_per_s: float = 1000.0, seconds: float = 3600.0, running: float = 64.0) -> SpeedHistory:
    """The same speed in each of the bins of ten seconds."""
    bins = int(seconds / 10)
    return SpeedHistory(10.0, np.full(bins, tokens_per_s), np.full(bins, running))


def observation(datasets: Sequence[DatasetNow] | None = None, history: SpeedHistory | None = None, **more: Any) -> Observation:
    """One hour into a run of one dataset at 64 in flight, unless told otherwise."""
    more.setdefault("active_s", 3600.0)
    more.setdefault("concurrency", 64)
    more.setdefault("speed_curve", CURVE)
    more.setdefault("budget_stop", BudgetStop.DRAIN)
    more.setdefault("overlap", False)
    chosen = tuple(datasets) if datasets is not None else (dataset(),)
    return Observation(datasets=chosen, history=steady() if history is None else history, **more)


def million() -> Observation:
    """Six datasets with a million finished samples, 150 requests in flight."""
    sets = [
        dataset(
            f"B{i}",
            finished_lengths=lengths(170_000, seed=i),
            in_flight_tokens=np.linspace(1, 900, 25).tolist(),
            prompts=300_000,
        )
        for i in range(6)
    ]
    return observation(sets, concurrency=150)
