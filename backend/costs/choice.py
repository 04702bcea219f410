"""Which ways are worth a thought (the Pareto front), and which datasets should go so that a deadline holds at least cost."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from itertools import combinations
from typing import Final

import numpy as np

from backend.costs.case import Api, Case
from backend.costs.comparison import api_range, done_share, later
from backend.costs.expected_bill import cost_draws, usd_range
from backend.costs.going import draw_going
from backend.costs.staying import UsdRange
from backend.costs.waiting import Waiting, moved, what_waits
from backend.forecast.calibrate import Range
from backend.forecast.forecast import forecast

MOST_COMBINED: Final = 10  # datasets, of which every combination is looked at; of more only the best by cost for the time won
MOST_TRIED: Final = 16  # combinations that are forecast in full
HOLDING: Final = 2  # of these that hold, after which none cheaper is to be expected
SLACK: Final = 1.05  # how far off the quick estimate of the box's time may be before a combination is not even tried

Costs = Mapping[str, Sequence[Decimal] | None]  # by dataset, K draws; None: unknown


@dataclass(frozen=True, slots=True)
class Plan:
    """Which datasets go to an API, and what comes of it."""

    api: str
    goes: tuple[str, ...]
    stays: tuple[str, ...]
    seconds: Range | None  # until both sides have ended; None where the box's side is not known
    usd_api: UsdRange | None
    usd_box: UsdRange | None  # until its side has ended; None: the box has no price
    holds: bool  # the deadline, 9 times of 10

    @property
    def usd(self) -> Decimal | None:
        """What it costs in the middle, as far as it is known; None where the API's part is not."""
        if self.usd_api is None:
            return None
        return self.usd_api.p50 + (self.usd_box.p50 if self.usd_box is not None else 0)


def pareto(points: Sequence[tuple[float, Decimal]]) -> tuple[int, ...]:
    """Places of those (seconds, US dollars) that no other one beats in both, the fastest first."""
    front: list[int] = []
    for i in sorted(range(len(points)), key=lambda i: points[i]):
        if not front or points[i][1] < points[front[-1]][1]:
            front.append(i)
    return tuple(front)


def cheapest_plan(case: Case, api: Api, deadline_s: float) -> Plan | None:
    """The combination that holds the deadline (seconds from now) at least cost; where none does, the one that ends first.

    None where nothing waits. Combinations are ordered by a quick estimate, and the promising ones forecast in full.
    """
    waiting = what_waits(case.observation)
    if not waiting:
        return None
    costs: Costs = {one.name: cost_draws(api, one, case.texts) for one in waiting}
    tried: list[Plan] = []
    for goes in _promising(case, waiting, costs, deadline_s):
        tried.append(_plan(case, api, goes, waiting=waiting, costs=costs, deadline_s=deadline_s))
        if sum(plan.holds for plan in tried) >= HOLDING:
            break
    holding = [plan for plan in tried if plan.holds]
    if holding:
        return min(holding, key=lambda plan: (plan.usd is None, plan.usd or 0, _p90(plan)))
    return min(tried, key=_p90)


def _promising(case: Case, waiting: Sequence[Waiting], costs: Costs, deadline_s: float) -> list[tuple[str, ...]]:
    """Combinations by estimated cost, without those that cannot hold; all or nothing, the last resorts, always."""
    names = tuple(one.name for one in waiting)
    whole = forecast(case.observation, case.calibration).remaining
    usd = {name: sorted(draws)[len(draws) // 2] if draws is not None else Decimal(0) for name, draws in costs.items()}
    tokens = np.stack([one.tokens for one in waiting])
    combined = [goes for goes in _combinations(names, usd, tokens.mean(axis=1).tolist()) if goes != names]
    stays = np.array([[name not in goes for name in names] for goes in combined], dtype=np.float64).reshape(-1, len(names))
    p50, p90 = np.quantile(stays @ tokens, (0.5, 0.9), axis=1) / np.quantile(tokens.sum(axis=0), (0.5, 0.9))[:, None]
    found = [((sum(usd.values(), Decimal(0)), len(names)), names)]
    for goes, part_p50, part_p90 in zip(combined, p50.tolist(), p90.tolist(), strict=True):
        if whole is None or part_p90 * whole.p90 <= SLACK * deadline_s:
            here = case.box.cost(part_p50 * whole.p50) if whole is not None else None
            found.append(((sum((usd[name] for name in goes), here or Decimal(0)), len(goes)), goes))
    found.sort()
    chosen = [goes for _, goes in found[:MOST_TRIED]]
    return chosen + [extreme for extreme in (names, ()) if extreme not in chosen]


def _combinations(names: tuple[str, ...], usd: Mapping[str, Decimal], tokens: Sequence[float]) -> Iterable[tuple[str, ...]]:
    if len(names) <= MOST_COMBINED:
        for size in range(len(names) + 1):
            yield from combinations(names, size)
        return
    worth = {name: float(usd[name]) / (made + 1) for name, made in zip(names, tokens, strict=True)}
    by_worth = sorted(names, key=lambda name: worth[name])
    for size in range(len(names) + 1):
        yield tuple(name for name in names if name in by_worth[:size])


def _plan(case: Case, api: Api, goes: tuple[str, ...], *, waiting: Sequence[Waiting], costs: Costs, deadline_s: float) -> Plan:
    sent = tuple(one for one in waiting if one.name in goes)
    nothing = Range(0.0, 0.0, 0.0)
    there = nothing
    if sent:
        going = draw_going(sent, api.limits, api.speed, case.texts.prompt_tokens)
        there = api_range(going.end_s, case.calibration, done_share(case.observation, waiting))
    here = forecast(moved(case.observation, goes), case.calibration).remaining
    if here is None and len(sent) == len(waiting) and not any(d.in_flight.total for d in case.observation.datasets):
        here = nothing  # nothing is left for a box of which no speed is known
    both = None if here is None else later(there, here)
    return Plan(
        api=api.name,
        goes=goes,
        stays=tuple(one.name for one in waiting if one.name not in goes),
        seconds=both,
        usd_api=usd_range([costs[name] for name in goes]) if goes else UsdRange(Decimal(0), Decimal(0), Decimal(0)),
        usd_box=case.box.cost_until(here),
        holds=both is not None and both.p90 <= deadline_s,
    )


def _p90(plan: Plan) -> float:
    return plan.seconds.p90 if plan.seconds is not None else float("inf")
