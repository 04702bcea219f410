"""Engine and APIs work side by side: each is forecast at its own speed, and the run ends with the last of them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from backend.config import RunConfig
from backend.forecast.calibrate import Range
from backend.forecast.forecast import forecast
from backend.forecast.observation import Observation, SpeedHistory, count_dataset
from backend.job.forecast_lanes import engines_part, even_curve, lanes_of, side_by_side
from backend.job.routes import Route
from backend.job.wishes import Wishes, initial
from backend.records import DatasetState


def wishes(**routes: Route) -> Wishes:
    config = RunConfig.model_validate(
        {
            "name": "run",
            "model": {"path": "m"},
            "engine": {"kind": "simulated"},
            "datasets": [{"name": name, "path": "x"} for name in ("A", "B", "C")],
            "api": {"far": {"base_url": "http://127.0.0.1:1/v1", "model": "m"}},
        }
    )
    found = initial(config)
    changed = {name: replace(wish, route=routes.get(name, wish.route)) for name, wish in found.datasets.items()}
    return replace(found, datasets=changed)


def observation(*names: str, tokens_per_s: float = 500.0, **changes: Any) -> Observation:
    lengths = np.random.default_rng(1).lognormal(6, 0.5, 200).round()
    datasets = [
        count_dataset(
            name, DatasetState.RUNNING, prompts=1000, token_budget=None, max_new_tokens=4000, finished_lengths=lengths
        )
        for name in names
    ]
    history = SpeedHistory(10.0, np.full(100, tokens_per_s), np.full(100, 20.0))
    return Observation(**{"active_s": 1000.0, "concurrency": 20, "datasets": tuple(datasets), "history": history, **changes})


def test_a_dataset_is_in_the_lane_of_its_api_also_where_the_engine_helps() -> None:
    far, both = Route(local=False, api="far"), Route(local=True, api="far")
    assert lanes_of(wishes()) == {"local": ["A", "B", "C"]}
    assert lanes_of(wishes(B=far)) == {"local": ["A", "C"], "far": ["B"]}
    assert lanes_of(wishes(A=both, B=far)) == {"far": ["A", "B"], "local": ["C"]}


def test_the_run_ends_with_its_last_lane_and_keeps_the_order_of_its_datasets() -> None:
    slow, quick = forecast(observation("A", "C")), forecast(observation("B", tokens_per_s=50_000.0))
    run = side_by_side(["A", "B", "C"], {"local": slow, "far": quick})
    assert run.remaining == slow.remaining
    assert [dataset.name for dataset in run.datasets] == ["A", "B", "C"]
    assert run.assumptions == slow.assumptions
    assert run.remaining_tokens is not None
    assert slow.remaining_tokens is not None
    assert quick.remaining_tokens is not None
    assert run.remaining_tokens.p50 == slow.remaining_tokens.p50 + quick.remaining_tokens.p50
    assert side_by_side(["A", "C"], {"local": slow}) is slow


def test_of_a_lane_that_can_say_nothing_yet_the_run_says_so() -> None:
    silent = forecast(observation("B", history=SpeedHistory(10.0, np.array([]), np.array([]))))
    run = side_by_side(["A", "B"], {"local": forecast(observation("A")), "far": silent})
    assert run.remaining is None
    assert run.why_none == silent.why_none
    assert run.remaining_tokens is None


def test_an_api_is_as_fast_as_it_has_requests() -> None:
    history = SpeedHistory(10.0, np.array([100.0, 300.0]), np.array([2.0, 6.0]))
    assert even_curve(history, 100) == ((1.0, 50.0), (100.0, 5000.0))
    assert even_curve(SpeedHistory(10.0, np.array([]), np.array([])), 100) is None


def test_a_what_if_starts_from_the_engines_lane_and_what_has_gone_only_finishes() -> None:
    local, far = observation("A", "C"), observation("B")
    basis = engines_part(["A", "B", "C"], {"far": far, "local": local})
    assert [(d.name, d.state) for d in basis.datasets] == [
        ("A", DatasetState.RUNNING),
        ("B", DatasetState.DRAINING),
        ("C", DatasetState.RUNNING),
    ]
    assert basis.concurrency == local.concurrency
    assert engines_part(["A", "C"], {"local": local}) is local
    gone = engines_part(["B"], {"local": replace(local, datasets=()), "far": far})
    assert gone.history is local.history
    assert forecast(gone).remaining == Range(0.0, 0.0, 0.0)


@pytest.mark.parametrize("speed", [100.0, 2000.0])
def test_each_quantile_is_that_of_the_lane_which_is_last_by_it(speed: float) -> None:
    one, other = forecast(observation("A")), forecast(observation("B", tokens_per_s=speed))
    run = side_by_side(["A", "B"], {"local": one, "far": other})
    assert run.remaining is not None
    assert one.remaining is not None
    assert other.remaining is not None
    assert run.remaining.p50 == max(one.remaining.p50, other.remaining.p50)
    assert run.remaining.p10 <= run.remaining.p50 <= run.remaining.p90
