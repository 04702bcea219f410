"""What a supervisor leaves of its forecasts in a run: what was said since the start, what it rests on, and telemetry."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from dataclasses import replace
from typing import Any

from backend import forecasts, telemetry_store
from backend.forecast.calibrate import Range
from backend.forecast.forecast import forecast
from backend.forecast.observation import Observation
from backend.forecasts import Said
from backend.records import DatasetStatus, JobStatus
from backend.run_dir import RunDir, open_state
from backend.telemetry import DriverSample
from tests.forecast.made_observation import dataset, lengths, observation
from tests.made_run import job_status


def two_datasets(**changes: Any) -> Observation:
    """alpha has made 2,000 of 10,000 samples in an hour, beta waits with a budget of 5M tokens; about five hours are left."""
    waiting = dataset("beta", "waiting", prompts=20_000, token_budget=5_000_000)
    running = dataset("alpha", finished_lengths=lengths(2000, mean=1600, log_sd=0.9), max_new_tokens=16_384)
    return observation([running, waiting], **changes)


def status_of(seen: Observation, **changes: Any) -> JobStatus:
    """What a supervisor would say of a run that this was observed of."""
    told = tuple(
        DatasetStatus(
            one.name,
            one.state,
            finished_samples=int(one.finished_samples),
            completion_tokens=int(one.finished_tokens),
            in_flight=int(one.in_flight.total),
            prompts=one.prompts,
            token_budget=one.token_budget,
        )
        for one in seen.datasets
    )
    return job_status(datasets=told, concurrency=seen.concurrency, in_flight=sum(d.in_flight for d in told), **changes)


def write_forecast(
    run: RunDir,
    seen: Observation,
    at: float,
    *,
    active: bool = True,
    earlier: Sequence[tuple[float, int, str, float]] = (),
    plan: int = 0,
) -> Said:
    """The newest forecast, made at `at`; before it `earlier` ones: (seconds before, plan, reason, times as much work left)."""
    found = forecast(seen)
    with closing(open_state(run)) as con:
        forecasts.create_tables(con)
        for before_s, its_plan, reason, factor in earlier:
            told = found
            if (left := found.remaining) is not None:
                told = replace(found, remaining=Range(left.p10 * factor, left.p50 * factor, left.p90 * factor))
            active_s = max(seen.active_s - before_s, 0.0)
            forecasts.write(con, Said(at - before_s, its_plan, active_s, True, reason, told), told, seen)
        said = Said(at, plan, seen.active_s, active, "each minute", found)
        forecasts.write(con, said, found, seen)
    return said


def write_finished(run: RunDir, seen: Observation, now: float) -> None:
    """Telemetry of an hour in which what is finished became so."""
    tokens = sum(one.finished_tokens for one in seen.datasets)
    with closing(open_state(run)) as con:
        telemetry_store.create_tables(con)
        for step in range(121):
            at = now - 3600 + 30 * step
            made = tokens * step / 120
            telemetry_store.write(con, [DriverSample(key="run", at=at, completion_tokens_total=made, in_flight=64)])
