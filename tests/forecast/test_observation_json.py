"""An observation is written down and read back without loss: a forecast from it is the same."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np

from backend.forecast.forecast import forecast
from backend.forecast.observation import BudgetStop, Observation, SpeedHistory, count_dataset
from backend.forecast.observation_json import observation_of, to_json
from backend.records import DatasetState


def observed() -> Observation:
    rng = np.random.default_rng(3)
    lengths = rng.lognormal(7, 0.8, 400).round()
    return Observation(
        active_s=1800.0,
        concurrency=64,
        datasets=(
            count_dataset(
                "B1", DatasetState.RUNNING, prompts=5000, token_budget=None, max_new_tokens=4096, finished_lengths=lengths,
                in_flight_tokens=rng.uniform(0, 2000, 64),
            ),
            count_dataset("B2", DatasetState.WAITING, prompts=800, token_budget=1_000_000, max_new_tokens=None),
        ),
        history=SpeedHistory(10.0, rng.normal(900, 20, 180), np.full(180, 64.0)),
        speed_curve=((1.0, 62.0), (8.0, 370.0), (48.0, 409.0)),
    )  # fmt: skip


def test_a_forecast_from_what_was_read_back_is_the_same() -> None:
    before = observed()
    after = observation_of(json.loads(json.dumps(to_json(before))))
    assert forecast(after) == forecast(before)
    assert (after.speed_curve, after.later_curve, after.budget_stop) == (before.speed_curve, None, BudgetStop.RESERVE)


def test_a_million_samples_take_a_few_kilobytes() -> None:
    before = observed()
    many = replace(before.datasets[0], finished=count_dataset(
        "B1", DatasetState.RUNNING, prompts=2_000_000, token_budget=None, max_new_tokens=4096,
        finished_lengths=np.random.default_rng(1).lognormal(6, 0.7, 1_000_000).round(),
    ).finished)  # fmt: skip
    text = json.dumps(to_json(replace(before, datasets=(many, before.datasets[1]))))
    assert len(text) < 20_000
