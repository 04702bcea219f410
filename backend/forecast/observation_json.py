"""An observation as compact JSON and back: bins that hold something only, so that a million samples take a few kB.

Figures are kept to their last digit: the luck of a forecast's draws hangs on them. This is Headway's own form,
written and read by the same version; the one that others may write is `from_json.py`'s.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from backend.forecast.observation import BINS, BudgetStop, DatasetNow, LengthCounts, Observation, SpeedHistory
from backend.records import DatasetState, Json


def to_json(observation: Observation) -> Json:
    """A JSON object that `observation_of` reads."""
    history = observation.history
    return {
        "active_s": observation.active_s,
        "concurrency": observation.concurrency,
        "datasets": [_dataset_to_json(dataset) for dataset in observation.datasets],
        "history": {
            "bin_s": history.bin_s,
            "tokens_per_s": history.tokens_per_s.tolist(),
            "running": history.running.tolist(),
        },
        "speed_curve": observation.speed_curve,
        "later_curve": observation.later_curve,
        "budget_stop": observation.budget_stop.value,
        "overlap": observation.overlap,
        "speed_factor": observation.speed_factor,
    }


def observation_of(value: Json) -> Observation:
    """The observation that `to_json` wrote. Raises KeyError, TypeError or ValueError on another shape."""
    history = value["history"]
    return Observation(
        active_s=value["active_s"],
        concurrency=value["concurrency"],
        datasets=tuple(_dataset_of(dataset) for dataset in value["datasets"]),
        history=SpeedHistory(
            history["bin_s"],
            np.array(history["tokens_per_s"], dtype=np.float64),
            np.array(history["running"], dtype=np.float64),
        ),
        speed_curve=_curve(value["speed_curve"]),
        budget_stop=BudgetStop(value["budget_stop"]),
        overlap=value["overlap"],
        later_curve=_curve(value["later_curve"]),
        speed_factor=value["speed_factor"],
    )


def _dataset_to_json(dataset: DatasetNow) -> Json:
    return {
        "name": dataset.name,
        "state": dataset.state.value,
        "prompts": dataset.prompts,
        "token_budget": dataset.token_budget,
        "max_new_tokens": dataset.max_new_tokens,
        "finished": _counts_to_json(dataset.finished),
        "finished_at_cap": dataset.finished_at_cap,
        "in_flight": _counts_to_json(dataset.in_flight),
        "more_tokens": dataset.more_tokens,
    }


def _dataset_of(value: Json) -> DatasetNow:
    return DatasetNow(
        name=value["name"],
        state=DatasetState(value["state"]),
        prompts=value["prompts"],
        token_budget=value["token_budget"],
        max_new_tokens=value["max_new_tokens"],
        finished=_counts_of(value["finished"]),
        finished_at_cap=value["finished_at_cap"],
        in_flight=_counts_of(value["in_flight"]),
        more_tokens=value["more_tokens"],
    )


def _counts_to_json(counts: LengthCounts) -> list[list[float]]:
    """[[bin, how many, their tokens], ...]"""
    filled = np.flatnonzero(counts.counts)
    return [[int(k), float(counts.counts[k]), float(counts.tokens[k])] for k in filled]


def _counts_of(value: Any) -> LengthCounts:
    counts, tokens = np.zeros(BINS), np.zeros(BINS)
    for k, n, made in value:
        counts[k], tokens[k] = n, made
    return LengthCounts(counts, tokens)


def _curve(value: Any) -> tuple[tuple[float, float], ...] | None:
    return None if value is None else tuple((float(n), float(speed)) for n, speed in value)
