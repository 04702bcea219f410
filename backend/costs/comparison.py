"""The rest of a run on the box against each API: time, money, speed and what limits it, for the whole and each dataset."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal

import numpy as np

from backend.costs.case import Api, Case
from backend.costs.expected_bill import QUANTILES, cost_draws, usd_range
from backend.costs.going import Going, draw_going
from backend.costs.limits import ApiLimits, Binding, StreamSpeed
from backend.costs.prices import EXACT
from backend.costs.staying import Box, UsdRange, break_even_gpu_hour_usd
from backend.costs.waiting import Waiting, moved, what_waits
from backend.forecast.calibrate import Calibration, Range
from backend.forecast.forecast import Forecast, forecast
from backend.forecast.observation import Floats, Observation


@dataclass(frozen=True, slots=True)
class Estimate:
    """Time and money of one way. None is unknown."""

    seconds: Range | None
    usd: UsdRange | None
    tokens_per_s: Range | None
    binds: Binding | None = None  # of an API


@dataclass(frozen=True, slots=True)
class ApiWay:
    """An API's side of it."""

    api: Api
    whole: Estimate  # until what is in flight on the box has finished as well; the money is the API's alone
    total_usd: UsdRange | None  # with what the box costs until then, where that is known
    datasets: Mapping[str, Estimate]  # each by itself, sent now
    batch_usd: Decimal | None  # the whole, where a batch within a day will do and has a known discount
    break_even_gpu_hour_usd: Decimal | None  # dearer GPU-hours make this API pay
    dataset_break_even_usd: Mapping[str, Decimal | None]  # likewise, for one dataset and its share of the box's time

    @property
    def point(self) -> tuple[float, Decimal] | None:
        """(seconds, US dollars in all), the middles; None where either is unknown."""
        return (self.whole.seconds.p50, self.total_usd.p50) if self.whole.seconds and self.total_usd else None


@dataclass(frozen=True, slots=True)
class Comparison:
    """Both sides."""

    local: Estimate
    why_no_local: str | None  # where the forecast cannot say anything yet
    local_datasets: Mapping[str, Estimate]  # in their order on the box; the money by their share of the tokens
    ways: tuple[ApiWay, ...]
    requests: Range  # that wait
    tokens: Range  # completion tokens of these
    finishing: Estimate | None  # what is in flight here finishes here, whatever is chosen; None: nothing is


def compare(case: Case, apis: Sequence[Api]) -> Comparison | None:
    """None where nothing waits to be made."""
    waiting = what_waits(case.observation)
    if not waiting:
        return None
    here = forecast(case.observation, case.calibration)
    finishing = _finishing(case, waiting)
    side = _ApiSide(case, waiting)
    return Comparison(
        local=_local(here, case.box),
        why_no_local=here.why_none,
        local_datasets=_local_datasets(here, waiting, case.box),
        ways=tuple(_way(side, api, here, finishing) for api in apis),
        requests=range_of(np.sum(np.stack([one.requests for one in waiting]), axis=0)),
        tokens=range_of(np.sum(np.stack([one.tokens for one in waiting]), axis=0)),
        finishing=finishing,
    )


class _ApiSide:
    """Draws for APIs: those of equal limits and speed share their times, as they differ in prices only."""

    def __init__(self, case: Case, waiting: tuple[Waiting, ...]) -> None:
        self.case = case
        self.waiting = waiting
        self.done_share = done_share(case.observation, waiting)
        self._goings: dict[tuple[ApiLimits, StreamSpeed, tuple[str, ...]], Going] = {}

    def estimate(self, api: Api, some: Sequence[Waiting], costs: UsdRange | None) -> Estimate:
        """One or all datasets through one API."""
        key = (api.limits, api.speed, tuple(one.name for one in some))
        going = self._goings.get(key)
        if going is None:
            going = self._goings[key] = draw_going(some, api.limits, api.speed, self.case.texts.prompt_tokens)
        seconds = api_range(going.end_s, self.case.calibration, self.done_share)
        speed = range_of(going.tokens / np.maximum(going.end_s, 1e-9))
        return Estimate(seconds, costs, speed, going.binds)


def api_range(end_s: Floats, calibration: Calibration, done: float) -> Range:
    """The calibrated range of an API's time: as sure as the box's forecast is when that share of the work is done."""
    drawn = range_of(end_s)
    return calibration.apply(drawn, drawn.p50 * done / (1 - done))


def done_share(observation: Observation, waiting: Sequence[Waiting]) -> float:
    """How far the work is, above 0 and below 1."""
    made = sum(d.finished_tokens + d.in_flight.total_tokens for d in observation.datasets)
    left = sum(float(np.median(one.tokens)) for one in waiting)
    return min(max(made / max(made + left, 1.0), 0.001), 0.999)


def range_of(draws: Floats) -> Range:
    """p10, p50 and p90 of draws."""
    p10, p50, p90 = np.quantile(draws, QUANTILES)
    return Range(float(p10), float(p50), float(p90))


def later(a: Range, b: Range) -> Range:
    """When both have ended."""
    return Range(max(a.p10, b.p10), max(a.p50, b.p50), max(a.p90, b.p90))


def _way(side: _ApiSide, api: Api, here: Forecast, finishing: Estimate | None) -> ApiWay:
    box, waiting = side.case.box, side.waiting
    costs = [cost_draws(api, one, side.case.texts) for one in waiting]
    whole = side.estimate(api, waiting, usd_range(costs))
    finishing_s = finishing.seconds if finishing is not None else None
    if finishing_s is not None and whole.seconds is not None:
        binds = Binding.BOX if finishing_s.p50 > whole.seconds.p50 else whole.binds
        whole = Estimate(later(whole.seconds, finishing_s), whole.usd, whole.tokens_per_s, binds)
    alone = {one.name: side.estimate(api, (one,), usd_range([cost])) for one, cost in zip(waiting, costs, strict=True)}
    here_usd = finishing.usd if finishing is not None else None
    batch_usd = None
    if whole.usd is not None and api.prices.batch_discount is not None:
        batch_usd = EXACT.multiply(whole.usd.p50, 1 - api.prices.batch_discount.value)
    saved_by = _time_shares(here, waiting)
    saved_s = here.remaining.p50 - (finishing_s.p50 if finishing_s is not None else 0.0) if here.remaining else None
    return ApiWay(
        api=api,
        whole=whole,
        total_usd=whole.usd + here_usd if whole.usd is not None and here_usd is not None else whole.usd,
        datasets=alone,
        batch_usd=batch_usd,
        break_even_gpu_hour_usd=break_even_gpu_hour_usd(whole.usd.p50 if whole.usd else None, box.gpus, saved_s),
        dataset_break_even_usd={
            name: break_even_gpu_hour_usd(one.usd.p50 if one.usd else None, box.gpus, _part(here.remaining, saved_by.get(name)))
            for name, one in alone.items()
        },
    )


def _part(seconds: Range | None, share: float | None) -> float | None:
    return None if seconds is None or share is None else seconds.p50 * share


def _local(here: Forecast, box: Box) -> Estimate:
    speed = here.assumptions.tokens_per_s if here.assumptions is not None else None
    return Estimate(here.remaining, box.cost_until(here.remaining), speed)


def _local_datasets(here: Forecast, waiting: Sequence[Waiting], box: Box) -> dict[str, Estimate]:
    """Ends in their order on the box; the money is that of the box's time, by each dataset's share of it."""
    shares, whole = _time_shares(here, waiting), box.cost_until(here.remaining)
    found = {}
    for dataset in here.datasets:
        if not any(one.name == dataset.name for one in waiting):
            continue
        usd, part = None, shares.get(dataset.name)
        if whole is not None and part is not None:
            share = Decimal(repr(part))
            usd = UsdRange(whole.p10 * share, whole.p50 * share, whole.p90 * share)
        found[dataset.name] = Estimate(dataset.ends_in if here.remaining is not None else None, usd, None)
    return found


def _time_shares(here: Forecast, waiting: Sequence[Waiting]) -> dict[str, float]:
    """Dataset → its share of the box's time, 0..1, as its share of the tokens that are left is."""
    total = here.remaining_tokens.p50 if here.remaining_tokens is not None else 0.0
    names = {one.name for one in waiting}
    return {
        d.name: min(d.remaining_tokens.p50 / total, 1.0)
        for d in here.datasets
        if d.name in names and d.remaining_tokens is not None and total > 0
    }


def _finishing(case: Case, waiting: Sequence[Waiting]) -> Estimate | None:
    if not any(d.in_flight.total for d in case.observation.datasets):
        return None
    rest = forecast(moved(case.observation, [one.name for one in waiting]), case.calibration)
    return _local(rest, case.box)
