"""How far forecasts hold: on jobs of a small simulator of our own, and on the forecast lab's where it lies beside the checkout.

The lab's jobs are drawn from a seed (FORECAST_SEED, FORECAST_JOBS of them); its own program makes and plays them. Intervals are
of a bootstrap over jobs, because the moments of one job are not independent.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from backend.forecast.calibrate import Score
from backend.forecast.forecast import forecast, naive
from backend.forecast.from_json import observation_from_json
from backend.forecast.observation import BudgetStop, Observation
from tests.bench.figure import Figure, at_least, at_most, told
from tests.forecast.made_observation import million
from tests.forecast.small_lab import made_job

LAB = Path(__file__).resolve().parents[3] / "shared"
OWN_JOBS = 60
LAB_JOBS = int(os.environ.get("FORECAST_JOBS", "400"))
LAB_SEED = int(os.environ.get("FORECAST_SEED", "20"))
HARSH_JOBS = 60
ENOUGH_JOBS = 200  # fewer say too little to be judged by
MOST_PINBALL = 3.0  # as the lab counts one that is far off
TIMED = 15


@dataclass(frozen=True, slots=True)
class Result:
    """One moment of one job."""

    job: str
    score: Score | None  # None: nothing was said
    naive_error: float | None


def measure(folder: Path) -> Iterator[Figure]:
    """Error, coverage and pinball of forecasts, beside simple extrapolation; and how long one takes."""
    yield from _figures("own simulator", _own_results())
    yield at_most("a forecast of 1M samples, 6 datasets, 150 in flight (ms)", _milliseconds(), 50, "{:.1f}")
    lengths_file, program = LAB / "data/lengths/calibration.jsonl", LAB / "forecast_lab/lab.py"
    if not (lengths_file.exists() and program.exists()):
        yield Figure("the forecast lab is not beside this checkout", "skipped")
        return
    for name, count, more in (("lab r1,chat", LAB_JOBS, ()), ("lab harsh", HARSH_JOBS, ("--server", "harsh"))):
        jobs = folder / f"{name.replace(' ', '-')}.jsonl"
        command = [sys.executable, str(program), "jobs", str(lengths_file), "--family", "r1,chat"]
        command += ["--count", str(count), "--seed", str(LAB_SEED), "--out", str(jobs), *more]
        subprocess.run(command, check=True, stderr=subprocess.DEVNULL, timeout=3600)
        yield from _figures(name, _lab_results(jobs), judged=not more and count >= ENOUGH_JOBS)


def _own_results() -> list[Result]:
    results = []
    for seed in range(1000, 1000 + OWN_JOBS):
        stop = (BudgetStop.DRAIN, BudgetStop.CANCEL)[seed % 2]
        for moment in made_job(seed, stop, unsteady=seed % 5 == 0).play(shares=(0.02, 0.1, 0.3, 0.6, 0.9)):
            results.append(_result(str(seed), moment.observation, moment.remaining_s))
    return results


def _lab_results(jobs: Path) -> list[Result]:
    results = []
    with jobs.open() as lines:
        for line in lines:
            asked = json.loads(line)
            seen = observation_from_json(asked["observation"])
            results.append(_result(asked["key"].split("@")[0], seen, asked["truth"]["remaining_s"]))
    return results


def _result(job: str, seen: Observation, remaining_s: float) -> Result:
    found, simple = forecast(seen).remaining, naive(seen)
    score = Score(seen.active_s, found, remaining_s) if found is not None and remaining_s > 0 else None
    return Result(job, score, abs(simple / remaining_s - 1) if simple is not None and remaining_s > 0 else None)


def _figures(name: str, results: Sequence[Result], *, judged: bool = False) -> Iterator[Figure]:
    said = [(result.job, result.score) for result in results if result.score is not None]
    errors = np.array([abs(score.forecast.p50 / score.actual_s - 1) for _, score in said])
    held = np.array([float(score.held) for _, score in said])
    pinball = np.array([min(score.pinball, MOST_PINBALL) for _, score in said])
    low, high = _intervals([job for job, _ in said], errors, held, pinball)
    simple = float(np.median([result.naive_error for result in results if result.naive_error is not None]))
    moments = f"{len({job for job, _ in said})} jobs, {len(said)} moments"
    yield told(f"{name}: moments without a forecast (of {moments})", len(results) - len(said))
    yield told(f"{name}: median error of simple extrapolation", simple, "{:.1%}")
    error, cover, loss = float(np.median(errors)), float(held.mean()), float(pinball.mean())
    texts = [f"{low[i]:.1%} to {high[i]:.1%}" for i in range(3)]
    if judged:
        yield at_most(f"{name}: median error, 95 %: {texts[0]}", error, 0.075, "{:.1%}")
        yield at_least(f"{name}: 80 % ranges that held, 95 %: {texts[1]}", cover, 0.77, "{:.1%}")
        yield at_most(f"{name}: 80 % ranges that held, not too wide", cover, 0.84, "{:.1%}")
        yield at_most(f"{name}: mean pinball, 95 %: {texts[2]}", loss, 0.12, "{:.1%}")
    else:
        yield told(f"{name}: median error, 95 %: {texts[0]}", error, "{:.1%}")
        yield at_least(f"{name}: 80 % ranges that held, 95 %: {texts[1]}", cover, 0.7, "{:.1%}")
        yield told(f"{name}: mean pinball, 95 %: {texts[2]}", loss, "{:.1%}")


def _intervals(jobs: Sequence[str], *columns: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(1)
    names = sorted(set(jobs))
    places = {name: np.flatnonzero(np.array(jobs) == name) for name in names}
    drawn = []
    for _ in range(300):
        at = np.concatenate([places[names[i]] for i in rng.integers(len(names), size=len(names))])
        drawn.append((np.median(columns[0][at]), *(column[at].mean() for column in columns[1:])))
    low, high = np.quantile(np.array(drawn), (0.025, 0.975), axis=0)
    return low, high


def _milliseconds() -> float:
    seen = million()
    forecast(seen)
    took = []
    for _ in range(TIMED):
        began = time.perf_counter()
        forecast(seen)
        took.append(time.perf_counter() - began)
    return float(np.median(took)) * 1000
