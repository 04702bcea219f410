"""PURE: what a forecast assumes, each with its source and how far the end moves if it is 10 % wrong."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

from backend.forecast.calibrate import Range
from backend.forecast.forecast import Assumptions, DatasetForecast, Forecast, forecast
from backend.forecast.observation import Observation
from backend.forecast.what_if import with_concurrency
from backend.forecasts import Basis
from backend.report.end_words import length_words
from backend.report.ending import names_words
from backend.report.formatting import number, plural

YOURS: Final = "yours"
PRIOR: Final = "prior"


@dataclass(frozen=True, slots=True)
class Assumption:
    """One of them. `later_s`: how much later the likely end is if it is 10 % wrong for the worse; None: not reckoned."""

    name: str
    value: str
    source: str
    later_s: float | None = None


def assumption_rows(found: Forecast, basis: Basis) -> tuple[Assumption, ...]:
    """In the order of how much hangs on them, what is exact last. Empty where nothing can be said yet."""
    assumed, remaining = found.assumptions, found.remaining
    if assumed is None or remaining is None or remaining.p90 <= 0:
        return ()
    rows = [_speed(assumed, basis.observation), *_lengths(found, basis.observation)]
    rows += [_outages(assumed), _concurrency(assumed, basis, remaining)]
    rows.sort(key=lambda row: -(row.later_s or 0.0))
    return (*rows, *_limits(found), _ranges(assumed))


def for_others(row: Assumption) -> Assumption:
    """The same for those who have not set up the run."""
    return replace(
        row, value=row.value.replace(" for you", " for somebody"), source=row.source.replace(YOURS, "set for the run")
    )


def _speed(assumed: Assumptions, observation: Observation) -> Assumption:
    value = f"{_range(assumed.tokens_per_s)} tokens/s"
    if assumed.speed_factor != 1:
        value += f", taken to be {assumed.speed_factor:.2f} times what was measured"
    source = "sweep" if assumed.speed_source == "sweep" else f"measured over {length_words(assumed.speed_measured_s)}"
    if assumed.speed_source != "sweep" and observation.speed_curve is not None:
        source += ", the shape from a sweep"
    return Assumption("Speed in the long run", value, source, assumed.later_if_speed_10_percent_lower_s)


def _lengths(found: Forecast, observation: Observation) -> list[Assumption]:
    """A row a dataset that has work left."""
    speed = found.assumptions.tokens_per_s.p50 if found.assumptions else 0.0
    finished = {d.name: d.finished_samples for d in observation.datasets}
    begun = any(d.begun for d in found.datasets)
    rows = []
    for one in found.datasets:
        if one.budget_binds is None or one.mean_tokens is None or one.remaining_tokens is None:
            continue
        value = f"{_range(one.mean_tokens)} tokens"
        if one.naive_mean_tokens is not None and _differ(one.naive_mean_tokens, one.mean_tokens.p50):
            value += f"; finished so far: {number(one.naive_mean_tokens)}"
        # where the budget ends it, longer answers are fewer answers: nothing becomes later
        later = one.remaining_tokens.p50 * 0.1 * (1 - one.budget_binds) / speed if speed > 0 else None
        rows.append(Assumption(f"Mean completion of {one.name}", value, _length_source(one, finished[one.name], begun), later))
    return rows


def _length_source(one: DatasetForecast, finished: float, others_begun: bool) -> str:
    if finished:
        return f"measured, n = {number(finished)}, and what is in flight"
    if one.begun:
        return "prior, and what is in flight"
    return "prior: the run's other datasets" if others_begun else PRIOR


def _outages(assumed: Assumptions) -> Assumption:
    few = assumed.outages_to_come < 0.05
    value = f"{'hardly any' if few else _count(assumed.outages_to_come)} of {length_words(assumed.outage_mean_s)} to come"
    source = f"{PRIOR}, and {plural(assumed.outages_seen, 'outage')} seen"
    if assumed.down:
        source += "; the server makes nothing now"
    return Assumption("Outages", value, source, 0.1 * assumed.outages_to_come * assumed.outage_mean_s)


def _concurrency(assumed: Assumptions, basis: Basis, remaining: Range) -> Assumption:
    seen = basis.observation
    fewer = max(round(seen.concurrency * 0.9), 1)
    less = forecast(with_concurrency(seen, fewer), basis.calibration).remaining if fewer < seen.concurrency else None
    later = None if less is None else max(less.p50 - remaining.p50, 0.0)
    return Assumption("Requests in flight", number(assumed.concurrency), YOURS, later)


def _limits(found: Forecast) -> list[Assumption]:
    parts = []
    for one in found.datasets:
        if one.budget_binds is None:
            continue
        share = one.budget_binds
        ended_by = "its budget" if share > 0.95 else "its samples" if share < 0.05 else f"its budget, {share:.0%} likely"
        parts.append(f"{one.name} by {ended_by}")
    rows = [Assumption("What ends each dataset", "; ".join(parts), f"{YOURS}, and what was measured")] if parts else []
    left_out = found.assumptions.left_out if found.assumptions else ()
    if left_out:
        waits = "waits" if len(left_out) == 1 else "wait"
        rows.append(Assumption("Left out", f"{names_words(left_out)}, which {waits} for somebody", YOURS))
    return rows


def _ranges(assumed: Assumptions) -> Assumption:
    own = f"corrected by {plural(assumed.own_results, 'own result')}" if assumed.own_results else "the built-in calibration"
    value = "8 of 10 outcomes lie within"
    if assumed.unsteadiness > 1.1:
        value += f"; widened, as the server is {assumed.unsteadiness:.1f} times as unsteady as usual"
    return Assumption("Width of the ranges", value, own)


def _differ(one: float, other: float) -> bool:
    return abs(one - other) > 0.03 * max(one, other)


def _range(value: Range) -> str:
    return f"{number(value.p50)} ({number(value.p10)}–{number(value.p90)})"


def _count(expected: float) -> str:
    return f"{expected:.1f}" if expected < 10 else number(expected)
