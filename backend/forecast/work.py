"""What is left to generate: of each dataset the tokens until it stops, which limit stops it, how its last requests run out.

Work is answered in seconds at level 0 of the speed curve, so that what the server does later is a matter of `speed.py` alone.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.random import Generator

from backend.forecast.curve import SpeedCurve
from backend.forecast.lengths import LengthDraws
from backend.forecast.observation import ADMITTING, EDGES_TOKENS, FINISHING, BudgetStop, DatasetNow, Floats

WIDTHS_TOKENS: Final[Floats] = np.diff(EDGES_TOKENS)
COARSE: Final = 48  # steps in which the requests that are in flight now run out


@dataclass(frozen=True, slots=True)
class WorkDraws:
    """K draws of one dataset's work."""

    tokens: Floats  # still to generate
    full_tokens: Floats  # of these, while its slots are kept full
    slots: float
    drain_s: Floats  # for the rest, alone on the server, at level 0
    last_tokens: Floats  # tokens that its longest request still makes once nothing more is admitted
    budget_binds: Floats  # 0 or 1
    final_tokens: Floats  # finished in the end
    final_samples: Floats
    mean_age: Floats  # tokens of a request in flight, while slots are full


def work_left(
    dataset: DatasetNow,
    lengths: LengthDraws,
    *,
    curve: SpeedCurve,
    concurrency: int,
    stop: BudgetStop,
    rng: Generator,
) -> WorkDraws | None:
    """None for a dataset with nothing to do."""
    in_flight, made = dataset.in_flight.total, dataset.in_flight.total_tokens
    admits = dataset.state in ADMITTING
    if not admits and (dataset.state not in FINISHING or in_flight == 0):
        return None
    new = max(dataset.prompts - dataset.finished_samples - in_flight, 0.0) if admits else 0.0
    budget = float(dataset.token_budget) if dataset.token_budget is not None else np.inf
    left = budget - dataset.finished_tokens
    if admits and left <= 0:
        new = 0.0
    if new + in_flight == 0 or (left <= 0 and stop is BudgetStop.CANCEL):
        return None
    mean, square = lengths.mean, lengths.square
    one_only = stop is BudgetStop.RESERVE and dataset.finished_samples + in_flight == 0 and left < float(np.median(mean))
    if one_only:
        new = min(new, 1.0)  # even a budget below one answer gets one
    of_running, variance = _of_running(dataset, lengths)
    expected = of_running + new * mean
    sd = np.sqrt(variance + new * np.maximum(square - mean**2, 0.0))
    sd = np.minimum(sd, 0.3 * expected)  # so that more samples are never less work
    by_samples = expected + rng.standard_normal(len(mean)).clip(-3, 3) * sd
    startable = _startable(left - made, of_running, mean) if stop is BudgetStop.RESERVE else new
    slots = max(min(float(concurrency), in_flight + min(new, startable)), 1.0)
    age = _ages(lengths, np.maximum(budget if np.isfinite(budget) else 1e15, 1.0), slots)
    tail = np.minimum(slots * age, by_samples)  # left in the requests in flight when nothing more is admitted
    if new == 0:
        tail = by_samples
    elif new < slots:
        tail = np.minimum(tail + (1 - new / slots) * (of_running - tail).clip(0), by_samples)
    to_admit_all = by_samples - tail
    if not np.isfinite(left) or not admits:
        binds, full = np.zeros(len(mean)), to_admit_all
    elif stop is BudgetStop.RESERVE:
        reach = by_samples if one_only else np.maximum(left - made, np.minimum(of_running, by_samples))
        binds = (reach < by_samples).astype(np.float64)
        full = np.where(binds > 0, np.maximum(reach - tail, 0.0), to_admit_all)
        tail = np.where(binds > 0, np.minimum(reach, tail), tail)
    else:
        reach = np.maximum(left + slots * age - made, 0.0)  # until finished tokens come to the budget
        binds = (made + by_samples > left).astype(np.float64)
        if stop is BudgetStop.CANCEL:
            full = np.where(reach < by_samples, np.minimum(reach, by_samples), to_admit_all)
            tail = np.where(reach < by_samples, 0.0, tail)
        else:
            full = np.minimum(reach, to_admit_all)
    drain_s, last = _drain(dataset, lengths, curve, slots, tail, now=new == 0)
    total = full + tail
    final = dataset.finished_tokens + made + total
    if stop is BudgetStop.CANCEL:
        final = np.where(binds > 0, np.minimum(final, budget), final)
    samples = np.minimum(dataset.finished_samples + (final - dataset.finished_tokens) / mean, dataset.prompts)
    samples = np.where(binds > 0, samples, dataset.finished_samples + in_flight + new)
    return WorkDraws(total, full, slots, drain_s, last, binds, final, samples, np.asarray(age))


def _startable(left: float, of_running: Floats, mean: Floats) -> float:
    """How many requests more a budget has room for, beside what those in flight still make; at least one."""
    return max((left - float(np.median(of_running))) / max(float(np.median(mean)), 1.0), 1.0)


def _of_running(dataset: DatasetNow, lengths: LengthDraws) -> tuple[Floats, Floats]:
    """Tokens (K) that the requests in flight still make, and the variance (K) of their sum."""
    counts = dataset.in_flight.counts
    there = np.flatnonzero(counts)
    if not len(there):
        return np.zeros(len(lengths.mean)), np.zeros(len(lengths.mean))
    ages = dataset.in_flight.tokens[there] / counts[there]
    low, high = EDGES_TOKENS[there], EDGES_TOKENS[there + 1]
    part = np.clip((ages - low) / (high - low), 0.0, 1.0)
    mean = lengths.mean_beyond[:, there] * (1 - part) + lengths.mean_beyond[:, there + 1] * part
    square = lengths.square_beyond[:, there] * (1 - part) + lengths.square_beyond[:, there + 1] * part
    left = np.maximum(mean - ages, 0.0) @ counts[there]
    return left, np.maximum(square - mean**2, 0.0) @ counts[there]


def _ages(lengths: LengthDraws, budget: float, slots: float) -> Floats:
    """Mean tokens (K) made by a request in flight when `budget` tokens are finished, all slots having been filled at once."""
    inside = (lengths.survival[:, :-1] + lengths.survival[:, 1:]) / 2
    middle = (EDGES_TOKENS[:-1] + EDGES_TOKENS[1:]) / 2
    steady = lengths.square / (2 * np.maximum(lengths.mean, 1e-9))
    if budget > 4 * slots * float(lengths.mean.max()):
        return np.asarray(steady)
    renewed = np.concatenate([np.zeros((len(steady), 1)), np.cumsum(inside * (middle * WIDTHS_TOKENS), axis=1)], axis=1)
    age = steady
    rows = np.arange(len(steady))
    for _ in range(4):
        turn = budget / slots + age  # tokens that each slot has made by then
        at = np.minimum(np.searchsorted(EDGES_TOKENS, turn), len(EDGES_TOKENS) - 1)
        age = np.minimum(turn * lengths.survival[rows, at] + renewed[rows, at] / np.maximum(lengths.mean, 1e-9), turn)
    return np.asarray(np.where(turn > 4 * lengths.mean, steady, age))


def _drain(
    dataset: DatasetNow, lengths: LengthDraws, curve: SpeedCurve, slots: float, tail: Floats, *, now: bool
) -> tuple[Floats, Floats]:
    """Seconds (K, level 0) in which `tail` tokens run out with nothing admitted, and the tokens of the longest request."""
    if now:
        steps, running = _running_out(dataset, lengths)
        widths = np.diff(steps)[None, :]
        middle = (running[:, :-1] + running[:, 1:]) / 2
    else:
        area = (lengths.survival[:, :-1] + lengths.survival[:, 1:]) / 2 * WIDTHS_TOKENS
        beyond = np.cumsum(area[:, ::-1], axis=1)[:, ::-1]
        share = beyond / np.maximum(beyond[:, :1], 1e-9)  # of requests that have more left than edge k, in the steady state
        running = slots * np.concatenate([share, np.zeros((len(share), 1))], axis=1)
        middle = (running[:, :-1] + running[:, 1:]) / 2
        widths = WIDTHS_TOKENS[None, :]
    tokens = (middle * widths).sum(axis=1)
    seconds = (curve.seconds_per_token(middle) * widths).sum(axis=1)
    last = ((1 - np.exp(-middle)) * widths).sum(axis=1)
    scale = np.minimum(tail / np.maximum(tokens, 1e-9), 3.0)
    return seconds * scale, last


def _running_out(dataset: DatasetNow, lengths: LengthDraws) -> tuple[Floats, Floats]:
    """How many (K × steps) of the requests in flight now still run after each has made so many tokens more."""
    counts = dataset.in_flight.counts
    there = np.flatnonzero(counts)
    ages = dataset.in_flight.tokens[there] / counts[there]
    most = max(lengths.cap_tokens - float(ages.min()), 1.0)
    steps = np.concatenate([[0.0], np.geomspace(max(most / 4000, 0.5), most, COARSE)])
    running = np.zeros((len(lengths.mean), len(steps)))
    for age, count in zip(ages, counts[there], strict=True):
        reached = _survival_at(lengths, np.array([age]))
        later = _survival_at(lengths, age + steps)
        running += count * np.where(age + steps < lengths.cap_tokens, later / np.maximum(reached, 1e-9), 0.0).clip(0, 1)
    return steps, running


def _survival_at(lengths: LengthDraws, tokens: Floats) -> Floats:
    """Share (K × N) of completions longer than these."""
    place = np.interp(tokens, EDGES_TOKENS, np.arange(len(EDGES_TOKENS)))
    low = np.minimum(place.astype(np.intp), len(EDGES_TOKENS) - 2)
    part = place - low
    return np.asarray(lengths.survival[:, low] * (1 - part) + lengths.survival[:, low + 1] * part)
