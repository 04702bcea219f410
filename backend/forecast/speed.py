"""How fast the server works: its level against the curve's shape, now and in the long run, how steady it is, and its outages.

Learnt from this session's history only: the speed of another session says little about this one. What a given number of
requests makes is `curve.py`'s.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from backend.forecast.chance import normal_quantile, spread_normals
from backend.forecast.curve import SpeedCurve
from backend.forecast.observation import Floats, SpeedHistory

Bools = NDArray[np.bool_]
Indices = NDArray[np.intp]

MINUTE_S: Final = 60.0
HOUR_S: Final = 3600.0
OUTAGE_S: Final = 60.0  # without a token
NOW_HALF_LIFE_S: Final = 600.0
LONG_HALF_LIFE_S: Final = 4 * HOUR_S
RETURN_S: Final = 2400.0  # what the last minutes differ from the long run by is gone after this time, by a factor of e
CURVE_LOG_SD: Final = 0.15  # of the level that a sweep promises, before anything was measured
CURVE_SHAPE_SD: Final = 0.25  # of the level, for each factor of e in speed that the concurrency differs from what was measured
FAST_LOG_SD: Final = 0.03  # movement within half an hour
FAST_S: Final = 1800.0
SLOW_LOG_SD: Final = 0.03  # movement that stays, in an hour
LONGEST_DRIFT_S: Final = 1000 * HOUR_S  # what moves for six weeks does not go on in the same direction
SETTLING_LOG: Final = 0.11  # by which a young run's speed falls: heat, longer contexts, others on the machine
SETTLING_LOG_SD: Final = 0.05
SETTLING_S: Final = 1.5 * HOUR_S  # how soon it does
SETTLED_S: Final = 3 * HOUR_S  # of history, after which most of that has shown
NOISE_LOG_SD: Final = 0.006  # of a block's mean
BLOCK_S: Final = 240.0
STEADINESS_BLOCKS: Final = 8.0  # how many blocks the prior steadiness is worth
ALARM: Final = 1.4  # power: a server that is unsteady in minutes is more so in hours, with steps that blocks do not show
SURPRISE: Final = 40.0  # the most that one block says against steadiness
OUTAGES_PRIOR: Final = 0.5
OUTAGES_PRIOR_S: Final = 8 * HOUR_S
OUTAGE_PRIOR_S: Final = 240.0  # mean length of one
FEW: Final = 30.0  # outages


@dataclass(frozen=True, slots=True)
class SpeedOutlook:
    """What the history says. Levels are logs of a factor on the curve."""

    now: float
    long_run: float
    level_sd: float  # of the level, from how short the history is
    unsteadiness: float  # sd of its movements over that of a usual server
    unsteadiness_blocks: float  # how many movements were seen
    measured_s: float  # of history that tells of the speed; 0: the curve alone
    outages: int
    outage_s: float  # all of them together
    observed_s: float
    down: bool  # now


def look_at(history: SpeedHistory, curve: SpeedCurve, concurrency: int) -> SpeedOutlook | None:
    """None where neither history nor a sweep tells a speed."""
    made, running, bin_s = history.tokens_per_s, history.running, history.bin_s
    zero = made <= 0
    lengths, ends = _runs(zero)
    long_enough = lengths * bin_s >= OUTAGE_S
    out = _mark(len(made), lengths[long_enough], ends[long_enough])
    expected = curve.at(running)
    useful = ~out & (running >= min(1.0, concurrency)) & (expected > 0)
    useful[1:] &= ~out[:-1]  # the bin after an outage: requests are still on their way
    distance = np.log(np.maximum(expected, 1e-9) / float(curve.at(float(concurrency))))
    trust = np.where(useful, 1 / (1 + (distance / 0.25) ** 2), 0.0)
    per_minute = max(round(MINUTE_S / bin_s), 1)
    weight = _by_block(trust, per_minute)
    tokens, reference = _by_block(made * trust, per_minute), _by_block(expected * trust, per_minute)
    good = (reference > 0) & (tokens > 0)
    minutes = np.log(np.where(good, tokens, 1.0) / np.where(good, reference, 1.0))
    weight = np.where(good, weight, 0.0)
    bare = SpeedOutlook(
        now=0.0,
        long_run=0.0,
        level_sd=CURVE_LOG_SD,
        unsteadiness=1.0,
        unsteadiness_blocks=0.0,
        measured_s=0.0,
        outages=int(long_enough.sum()),
        outage_s=float(out.sum() * bin_s),
        observed_s=len(made) * bin_s,
        down=bool(out[-1]) if len(out) else False,
    )
    total = float(weight.sum())
    if total <= 0:
        return bare if curve.known else None
    age_s = np.arange(len(minutes) - 1, -1, -1) * per_minute * bin_s
    now, now_weight = _average(minutes, weight * 0.5 ** (age_s / NOW_HALF_LIFE_S))
    long_run, _ = _average(minutes, weight * 0.5 ** (age_s / LONG_HALF_LIFE_S))
    measured_s = total * bin_s
    noise = (FAST_LOG_SD**2 + CURVE_LOG_SD**2 * 30 / (30 + measured_s)) / (1 + measured_s / FAST_S)
    off = 0.0
    if now_weight > 0:
        off, _ = _average(distance, trust)
    sd = math.sqrt(noise + (CURVE_SHAPE_SD * off) ** 2)
    factor, blocks = _unsteadiness(minutes, weight, max(round(BLOCK_S / (per_minute * bin_s)), 1))
    return replace(
        bare,
        now=now,
        long_run=long_run,
        level_sd=sd,
        unsteadiness=factor,
        unsteadiness_blocks=blocks,
        measured_s=measured_s,
    )


@dataclass(frozen=True, slots=True)
class SpeedDraws:
    """K futures of the server. Times are answered for work in seconds at level 0 of the curve."""

    outlook: SpeedOutlook
    factor: float  # assumed by the caller, on top of all
    level_error: Floats
    settling: Floats  # log by which it falls, once it has
    drift: Floats  # standard normal
    fast: Floats  # standard normal
    steadiness: Floats  # factor on all movements
    outages_per_s: Floats
    outage_mean_s: Floats
    down_s: Floats  # what is left of an outage now
    chance: Floats  # K uniform, for the counts of outages

    def seconds_for(self, curve_s: Floats, lost_s: Floats) -> Floats:
        """Active seconds (K) until work of `curve_s` is done; `lost_s` is what an outage costs beyond its own length."""
        outlook = self.outlook
        rate = math.exp(outlook.long_run) * self.factor
        hours = np.maximum(curve_s / rate, 1.0) / HOUR_S
        drifting = np.minimum(hours, LONGEST_DRIFT_S / HOUR_S)
        fast_share = np.minimum(1.0, np.sqrt(2 * FAST_S / HOUR_S / np.maximum(hours, 1e-6)))
        moved = self.steadiness * (FAST_LOG_SD * fast_share * self.fast + SLOW_LOG_SD * np.sqrt(drifting / 3) * self.drift)
        settled = 1 - (1 - np.exp(-hours * HOUR_S / SETTLING_S)) * SETTLING_S / (hours * HOUR_S)
        speed = rate * np.exp(self.level_error + moved - self.settling * settled)
        ahead = math.exp(min(max(outlook.now - outlook.long_run, -2.0), 2.0)) - 1
        done = curve_s / speed
        for _ in range(4):
            done = np.maximum(curve_s / speed - ahead * RETURN_S * (1 - np.exp(-done / RETURN_S)), 0.0)
        count = _poisson_quantile(self.outages_per_s * done, self.chance)
        return np.asarray(done + count * (self.outage_mean_s + lost_s) + np.where(curve_s > 0, self.down_s, 0.0))


def draw_speed(outlook: SpeedOutlook, factor: float, draws: int, rng: Generator) -> SpeedDraws:
    """K futures; `factor` multiplies the speed."""
    freedom = STEADINESS_BLOCKS + outlook.unsteadiness_blocks
    steadiness = outlook.unsteadiness * np.sqrt(freedom / np.maximum(rng.chisquare(freedom, draws), 0.5))
    events, watched_s = OUTAGES_PRIOR + outlook.outages, OUTAGES_PRIOR_S + outlook.observed_s
    mean_s = (2 * OUTAGE_PRIOR_S + outlook.outage_s) / (2 + outlook.outages)
    return SpeedDraws(
        outlook=outlook,
        factor=factor,
        level_error=outlook.level_sd * spread_normals(draws, rng),
        settling=math.exp(-outlook.observed_s / SETTLED_S) * (SETTLING_LOG + SETTLING_LOG_SD * spread_normals(draws, rng)),
        drift=spread_normals(draws, rng),
        fast=spread_normals(draws, rng),
        steadiness=steadiness,
        outages_per_s=rng.gamma(events, 1 / watched_s, draws),
        outage_mean_s=mean_s * rng.gamma(4.0, 0.25, draws),
        down_s=mean_s * rng.exponential(1.0, draws) if outlook.down else np.zeros(draws),
        chance=rng.permutation((np.arange(draws) + 0.5) / draws),
    )


def _average(values: Floats, weights: Floats) -> tuple[float, float]:
    total = float(weights.sum())
    return (float(values @ weights) / total if total > 0 else 0.0), total


def _by_block(values: Floats, size: int) -> Floats:
    """Sums of each `size` values, counted from the newest; the oldest block may be short."""
    missing = -len(values) % size
    return np.asarray(np.concatenate([np.zeros(missing), values]).reshape(-1, size).sum(axis=1))


def _runs(mask: Bools) -> tuple[Indices, Indices]:
    """Lengths of the runs of True, and the index after the end of each."""
    edges = np.diff(np.concatenate([[0], mask.astype(np.int8), [0]]))
    starts, ends = np.flatnonzero(edges == 1), np.flatnonzero(edges == -1)
    return ends - starts, ends


def _mark(size: int, lengths: Indices, ends: Indices) -> Bools:
    step = np.zeros(size + 1, dtype=np.int64)
    np.add.at(step, ends - lengths, 1)
    np.add.at(step, ends, -1)
    return np.cumsum(step)[:size] > 0


def _unsteadiness(minutes: Floats, weight: Floats, per_block: int) -> tuple[float, float]:
    """How much blocks of four minutes differ from those before, over what a usual server's do; and how many were compared."""
    total, sums = _by_block(weight, per_block), _by_block(minutes * weight, per_block)
    full = total >= 0.5 * total.max()
    means = sums[full] / total[full]
    if len(means) < 3:
        return 1.0, 0.0
    usual = 2 * FAST_LOG_SD**2 * (1 - math.exp(-BLOCK_S / FAST_S)) + SLOW_LOG_SD**2 * BLOCK_S / HOUR_S + 2 * NOISE_LOG_SD**2
    surprise = np.minimum(np.diff(means) ** 2 / usual, SURPRISE)
    n = float(len(surprise))
    factor = math.sqrt((STEADINESS_BLOCKS + float(surprise.sum())) / (STEADINESS_BLOCKS + n))
    return (factor**ALARM if factor > 1 else factor), n


def _poisson_quantile(mean: Floats, chance: Floats) -> Floats:
    """The number of events whose cumulative chance is reached, for K means and K uniforms.

    Counted up to a mean of FEW; beyond by the Cornish-Fisher expansion (to its term of skewness).
    """
    few = np.minimum(mean, FEW)
    count = np.zeros_like(mean)
    at = np.exp(-few)
    cumulative = at.copy()
    for n in range(1, 100):  # ten standard deviations beyond FEW
        more = cumulative < chance
        if not more.any():
            break
        count += more
        at = at * few / n
        cumulative = cumulative + at
    z = normal_quantile(chance)
    many = np.maximum(np.round(mean + z * np.sqrt(mean) + (z * z - 1) / 6), 0.0)
    return np.where(mean > FEW, many, count)
