"""PURE: the ways in which a run could end sooner, ranked, each with its price in data; and which of them make a deadline."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Final

from backend.forecast.calibrate import Range
from backend.forecast.forecast import DatasetForecast, Forecast, forecast
from backend.forecast.observation import DatasetNow
from backend.forecast.what_if import effects_of_caps
from backend.forecasts import Basis
from backend.report.formatting import compact, number
from backend.report.what_if import SAME_DATA, Changes, changed, imagine

LET_IT_RUN: Final = "Let it run"
FEWER: Final = 0.6  # about this share of the samples or of the budget is tried
MOST_CUT_OFF: Final = 0.30  # a cap that would cut off more is not proposed
LEAST_SHORTER: Final = 0.05  # nor one that shortens the mean by less
SMALLEST_CAP_POWER: Final = 8  # 256 tokens
PROMISING: Final = 0.85  # levels of a sweep below this share of its best speed are not looked at
WORTH_IT: Final = 0.98  # another concurrency has to end sooner than this share of the time
SOME_WORK: Final = 0.1  # a dataset with less of the work left is not worth a proposal


@dataclass(frozen=True, slots=True)
class Option:
    """One way. `remaining` in active seconds; `makes_it` is whether 9 of 10 outcomes make the deadline, None without one."""

    name: str
    changes: Changes | None  # None: it cannot be had by changing this run
    remaining: Range
    prices: tuple[str, ...]
    makes_it: bool | None = None

    @property
    def is_present(self) -> bool:
        """Whether it is to let the run go on as it does."""
        return self.changes == Changes()


def ranked(basis: Basis, *, replicas: int, deadline_in_s: float | None = None) -> tuple[Option, ...]:
    """The soonest first, to let it run among them. `deadline_in_s`: from the forecast on.

    Empty where nothing can be forecast. Some seven forecasts, with a deadline that nothing makes eight more: cache the answer.
    """
    now = forecast(basis.observation, basis.calibration)
    if now.remaining is None or now.remaining.p90 <= 0:
        return ()
    found = [Option(LET_IT_RUN, Changes(), now.remaining, (SAME_DATA,))]
    levels = basis.observation.speed_curve or ()
    proposals = [*_fewer(basis, now), *_caps(basis, now), *_concurrency(basis, now, levels), *_dropped(now)]
    for name, changes in proposals:
        then = imagine(basis, changes, replicas, now)
        if then.remaining is not None and then.remaining.p50 < now.remaining.p50:
            found.append(Option(name, changes, then.remaining, then.prices or (SAME_DATA,)))
    if deadline_in_s is not None:
        found = [in_time(option, deadline_in_s) for option in found]
        if not any(option.makes_it for option in found) and (just := _just_in_time(basis, now, replicas, deadline_in_s)):
            found.append(in_time(just, deadline_in_s))
    return tuple(sorted(found, key=lambda option: option.remaining.p50))


def in_time(option: Option, deadline_in_s: float | None) -> Option:
    """The same, judged by the deadline where there is one."""
    return option if deadline_in_s is None else replace(option, makes_it=option.remaining.p90 <= deadline_in_s)


def _fewer(basis: Basis, now: Forecast) -> Iterable[tuple[str, Changes]]:
    """Fewer samples, or a smaller budget, of the dataset with the most work left: whichever limit ends it."""
    pair = _most_work(basis, now)
    if pair is None:
        return
    dataset, told = pair
    if told.budget_binds is not None and told.budget_binds > 0.5 and dataset.token_budget is not None:
        budget = _round(FEWER * dataset.token_budget)
        if budget > dataset.finished_tokens:
            yield f"A budget of {compact(budget)} tokens for {dataset.name}", Changes(budgets=((dataset.name, budget),))
        return
    samples = _round(FEWER * dataset.prompts)
    if samples > dataset.finished_samples + dataset.in_flight.total:
        yield f"{compact(samples)} samples of {dataset.name}", Changes(samples=((dataset.name, samples),))


def _caps(basis: Basis, now: Forecast) -> Iterable[tuple[str, Changes]]:
    """The lowest cap, a power of two, that cuts off not too many answers of any dataset with work left."""
    names = [one.name for one in now.datasets if one.budget_binds is not None and one.budget_binds < 0.5]
    highest = max((d.cap_tokens for d in basis.observation.datasets if d.name in names), default=0.0)
    caps = [2**power for power in range(SMALLEST_CAP_POWER, 20) if 2**power < highest]
    for cap, each in zip(caps, effects_of_caps(basis.observation, caps), strict=True) if caps else ():
        effects = [one for one in each if one.dataset in names]
        if max(one.truncated_share - one.truncated_share_now for one in effects) <= MOST_CUT_OFF:
            shorter = [one.dataset for one in effects if one.mean_tokens < (1 - LEAST_SHORTER) * one.mean_tokens_now]
            if shorter:
                yield f"A cap of {number(cap)} tokens", Changes(caps=tuple((name, cap) for name in shorter))
            return


def _concurrency(basis: Basis, now: Forecast, levels: Sequence[tuple[float, float]]) -> Iterable[tuple[str, Changes]]:
    """The concurrency of a sweep at which this run ends soonest, where that is worth it."""
    fastest = max((speed for _, speed in levels), default=0.0)
    promising = {round(n) for n, speed in levels if n >= 1 and speed >= PROMISING * fastest} - {basis.observation.concurrency}
    best, soonest = None, WORTH_IT * now.remaining.p50 if now.remaining else 0.0
    for level in sorted(promising):
        then = forecast(changed(basis.observation, Changes(concurrency=level), 1), basis.calibration).remaining
        if then is not None and then.p50 < soonest:
            best, soonest = level, then.p50
    if best is not None:
        yield f"{number(best)} requests in flight, by the sweep", Changes(concurrency=best)


def _dropped(now: Forecast) -> Iterable[tuple[str, Changes]]:
    """The last dataset, where it has not begun."""
    with_work = [one for one in now.datasets if one.budget_binds is not None]
    if len(with_work) > 1 and not with_work[-1].begun:
        yield f"Drop {with_work[-1].name}", Changes(dropped=(with_work[-1].name,))


def _just_in_time(basis: Basis, now: Forecast, replicas: int, deadline_in_s: float) -> Option | None:
    """As many samples of each dataset as can be made by the deadline: found by halving."""
    going = {one.name for one in now.datasets if one.budget_binds is not None}
    datasets = [one for one in basis.observation.datasets if one.name in going]
    told = {one.name: one for one in now.datasets}
    low, high, found = 0.0, 1.0, None
    for _ in range(7):
        share = (low + high) / 2
        changes = Changes(samples=tuple((one.name, _part(one, told[one.name], share)) for one in datasets))
        then = forecast(changed(basis.observation, changes, replicas), basis.calibration).remaining
        if then is not None and then.p90 <= deadline_in_s:
            low, found = share, changes
        else:
            high = share
    if found is None:
        return None
    then_all = imagine(basis, found, replicas, now)
    if then_all.remaining is None:
        return None
    names = ", ".join(f"{compact(samples)} of {name}" for name, samples in found.samples)
    return Option(f"As many samples as make it: {names}", found, then_all.remaining, then_all.prices or (SAME_DATA,))


def _part(dataset: DatasetNow, told: DatasetForecast, share: float) -> int:
    """That share of what is still to be made, on top of what is finished."""
    whole = min(told.total_samples.p50 if told.total_samples is not None else dataset.prompts, dataset.prompts)
    done = dataset.finished_samples
    return max(math.floor(done + share * max(whole - done, 0.0)), 1)


def _most_work(basis: Basis, now: Forecast) -> tuple[DatasetNow, DatasetForecast] | None:
    by_name = {one.name: one for one in now.datasets}
    left = {
        name: one.remaining_tokens.p50
        for name, one in by_name.items()
        if one.budget_binds is not None and one.remaining_tokens is not None
    }
    whole = sum(left.values())
    name = max(left, key=lambda each: left[each], default=None)
    if name is None or left[name] < SOME_WORK * whole:
        return None
    return next(one for one in basis.observation.datasets if one.name == name), by_name[name]


def _round(value: float) -> int:
    """Down to one digit: 548,400 → 500,000; to two where that takes a quarter and more away."""
    if value < 10:
        return max(int(value), 1)
    unit = 1.0
    for digits in (1, 2):
        unit = 10.0 ** (int(math.log10(value)) + 1 - digits)
        if value // unit * unit > 0.8 * value:
            break
    return round(value // unit * unit)
