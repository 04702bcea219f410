"""PURE: a run as it would be: other limits, another cap, more requests or replicas, fewer datasets.

An observation is changed by `forecast/what_if.py`; here several changes are one question, with their price in data and the
wishes that would make them true.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Final

from backend.forecast.calibrate import Range
from backend.forecast.forecast import Forecast, forecast
from backend.forecast.observation import Observation
from backend.forecast.what_if import (
    CapEffect,
    effects_of_caps,
    in_order,
    with_budget,
    with_cap,
    with_concurrency,
    with_replicas,
    with_samples,
    without,
)
from backend.forecasts import Basis
from backend.report.formatting import compact, number

SAME_DATA: Final = "the same data"
_WORTH_TELLING: Final = 0.002  # share of the samples or tokens, below which a difference is none


@dataclass(frozen=True, slots=True)
class Changes:
    """What would be different. Pairs are (dataset, value); nothing in it: as it is."""

    samples: tuple[tuple[str, int], ...] = ()  # at most so many
    budgets: tuple[tuple[str, int], ...] = ()  # completion tokens
    caps: tuple[tuple[str, int], ...] = ()  # max_new_tokens
    concurrency: int | None = None
    replicas: int | None = None
    efficiency: float = 1.0  # of what each replica more could bring at best: an assumption
    dropped: tuple[str, ...] = ()
    order: tuple[str, ...] = ()  # these first


@dataclass(frozen=True, slots=True)
class Imagined:
    """What the changes would bring. `prices` in words: what of the data they cost."""

    remaining: Range | None  # active seconds
    why_none: str | None
    prices: tuple[str, ...]
    effects: tuple[CapEffect, ...] = ()  # of caps, for the datasets that they touch


@dataclass(frozen=True, slots=True)
class Wish:
    """One thing that has to be wanted: a live setting, or a dataset killed (`key` is None)."""

    words: str
    key: str | None
    value: str
    dataset: str | None = None


def imagine(basis: Basis, changes: Changes, replicas: int, now: Forecast | None = None) -> Imagined:
    """`replicas`: there are now. `now`: the forecast of the basis, where the caller has it; each one takes about 40 ms.

    Raises ValueError for what cannot be.
    """
    now = now or forecast(basis.observation, basis.calibration)
    seen = changed(basis.observation, changes, replicas)
    then = forecast(seen, basis.calibration)
    caps = dict(changes.caps)
    asked = sorted(set(caps.values()))
    each = effects_of_caps(basis.observation, asked) if asked else ()
    effects = tuple(e for cap, found in zip(asked, each, strict=True) for e in found if caps.get(e.dataset) == cap)
    told = (*endings(basis.observation, changes), *prices(now, then, changes, effects))
    return Imagined(then.remaining, then.why_none, told, effects)


def changed(seen: Observation, changes: Changes, replicas: int) -> Observation:
    """The observation with all changes. Raises ValueError for what cannot be."""
    if changes.dropped:
        seen = without(seen, changes.dropped)
    for name, cap in changes.caps:
        seen = with_cap(seen, cap, name)
    for name, budget in changes.budgets:
        seen = with_budget(seen, budget, name)
    for name, samples in changes.samples:
        seen = with_samples(seen, samples, name)
    if changes.order:
        seen = in_order(seen, changes.order)
    if changes.concurrency is not None:
        seen = with_concurrency(seen, changes.concurrency)
    if changes.replicas is not None and changes.replicas != replicas:
        seen = with_replicas(seen, replicas, changes.replicas, changes.efficiency)
    return seen


def endings(seen: Observation, changes: Changes) -> tuple[str, ...]:
    """Which datasets a limit ends at once because what is finished, or in flight, has reached it: "alpha ends now: …"."""
    samples, budgets = dict(changes.samples), dict(changes.budgets)
    words = []
    for one in seen.datasets:
        if one.name in changes.dropped:
            continue
        finished, flying = round(one.finished_samples), round(one.in_flight.total)
        limit, budget = samples.get(one.name), budgets.get(one.name)
        if limit is not None and limit <= finished + flying:
            stay = f"{number(finished)} samples that are finished"
        elif budget is not None and budget <= one.finished_tokens:
            stay = f"{compact(one.finished_tokens)} tokens that are finished"
        else:
            continue
        running = f" and {number(flying)} in flight" if flying else ""
        words.append(f"{one.name} ends now: the {stay}{running} stay, no further prompt of it is sent")
    return tuple(words)


def prices(now: Forecast, then: Forecast, changes: Changes, effects: tuple[CapEffect, ...]) -> tuple[str, ...]:
    """What the data lose, or gain: "414k fewer samples", "23 % of answers cut off". Empty: the same data."""
    words = []
    for effect in effects:
        cut = f"{_percent(effect.truncated_share)} of {effect.dataset}'s answers cut off"
        if effect.truncated_share_now >= 0.02:
            cut += f", now {_percent(effect.truncated_share_now)}"
        words.append(f"{cut} (mean {number(effect.mean_tokens_now)} → {number(effect.mean_tokens)})")
    touched = {*changes.dropped, *(name for name, _ in (*changes.samples, *changes.budgets, *changes.caps))}
    before, after = _expected(now, touched), _expected(then, touched)
    for i, noun in enumerate(("samples", "tokens")):
        less = before[i] - after[i]
        # shorter answers are fewer tokens: the mean has said it; fewer samples likewise
        told = noun == "samples" or bool(changes.budgets) or not words
        if told and abs(less) > _WORTH_TELLING * max(before[i], 1.0):
            words.append(f"{compact(abs(less))} {'fewer' if less > 0 else 'more'} {noun}")
    for name in changes.dropped:
        words.append(f"nothing more of {name}")
    return tuple(words)


def wishes(changes: Changes) -> tuple[Wish, ...]:
    """What has to be wanted, in the order in which it is written: what takes work away comes before what makes it faster."""
    wanted = [Wish(f"{name}: killed, what is finished stays", None, "killed", name) for name in changes.dropped]
    wanted += [
        Wish(f"{name}: at most {number(cap)} tokens an answer, for requests to come", _key(name, "max_new_tokens"), str(cap))
        for name, cap in changes.caps
    ]
    wanted += [
        Wish(f"{name}: a budget of {number(budget)} tokens", _key(name, "token_budget"), str(budget))
        for name, budget in changes.budgets
    ]
    wanted += [
        Wish(f"{name}: at most {number(samples)} samples", _key(name, "max_samples"), str(samples))
        for name, samples in changes.samples
    ]
    if changes.order:
        wanted.append(Wish(f"order: {', '.join(changes.order)} first", "order", ",".join(changes.order)))
    if changes.concurrency is not None:
        wanted.append(Wish(f"{number(changes.concurrency)} requests in flight", "concurrency", str(changes.concurrency)))
    return tuple(wanted)


def not_live(changes: Changes, replicas: int) -> str | None:
    """What of the changes cannot be made while the run goes on, and how it can; None if nothing."""
    if changes.replicas is None or changes.replicas == replicas:
        return None
    return (
        f"The number of replicas cannot change while the run goes on: stop it, write engine.replicas = {changes.replicas} into "
        f"its run.toml, and start it again. What is finished stays."
    )


def _key(dataset: str, setting: str) -> str:
    return f"datasets.{dataset}.{setting}"


def _expected(found: Forecast, names: Collection[str]) -> tuple[float, float]:
    """Samples and tokens of these datasets in the end."""
    told = [one for one in found.datasets if one.name in names]
    samples = sum(one.total_samples.p50 for one in told if one.total_samples is not None)
    return samples, sum(one.total_tokens.p50 for one in told if one.total_tokens is not None)


def _percent(share: float) -> str:
    return f"{100 * share:.0f} %" if share >= 0.01 or share == 0 else f"{100 * share:.1f} %"
