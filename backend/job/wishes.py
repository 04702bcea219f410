"""What is wanted, as one value: the configuration with every accepted intent folded over it. Pure.

`apply` is the only place that says which intents are refused, and in which words.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any

from backend.config import MAX_CONCURRENCY, AtBudget, DatasetConfig, RunConfig, read_deadline
from backend.job.api_probe import read_order as read_probe_order
from backend.job.routes import Route, UnknownRouteError, parse_route
from backend.job.sweep_order import is_count, read_imported, read_order
from backend.records import Intent, IntentAction, Outcome


class RefusedError(Exception):
    """An intent cannot be accepted; the message says why and what to do."""


class Want(StrEnum):
    """What can be wanted of a dataset, the engine or the run."""

    RUNNING = "running"
    PAUSED = "paused"
    KILLED = "killed"
    STOPPED = "stopped"


@dataclass(frozen=True, slots=True)
class DatasetWish:
    """What is wanted of one dataset."""

    want: Want
    now: bool  # abort what is in flight instead of letting it finish
    token_budget: int | None
    max_samples: int | None
    at_budget: AtBudget
    max_new_tokens: int | None = None  # of requests to come
    route: Route = field(default_factory=Route)  # where its next requests go
    redo: tuple[Outcome, ...] = ()  # outcomes to make again, asked and not yet carried out


@dataclass(frozen=True, slots=True)
class Wishes:
    """Everything that is wanted of a run."""

    run: Want
    run_now: bool
    engine: Want
    concurrency: int
    order: tuple[str, ...]
    datasets: Mapping[str, DatasetWish]
    deadline: str | None = None  # ISO 8601
    api_caps: Mapping[str, float | None] = field(default_factory=dict)  # API → its spend cap in USD


def initial(config: RunConfig) -> Wishes:
    """What the configuration alone asks for."""
    return Wishes(
        run=Want.RUNNING,
        run_now=False,
        engine=Want.RUNNING,
        concurrency=config.generation.concurrency,
        order=tuple(d.name for d in config.datasets),
        datasets={d.name: _dataset_wish(config, d) for d in config.datasets},
        api_caps={name: api.spend_cap_usd for name, api in config.api.items()},
        deadline=config.forecast.deadline.isoformat(timespec="seconds") if config.forecast.deadline else None,
    )


def apply(wishes: Wishes, intent: Intent) -> tuple[Wishes, str]:
    """The wishes after an intent, and a sentence that says what was accepted.

    Raises:
        RefusedError: the intent names something that is not there, or asks for what cannot be.
    """
    if intent.subject == "run":
        return _apply_to_run(wishes, intent)
    if intent.subject == "engine":
        want = _want(intent, (Want.RUNNING, Want.STOPPED))
        return replace(wishes, engine=want), f"The engine will be {want}."
    kind, _, name = intent.subject.partition(":")
    if kind != "dataset" or name not in wishes.datasets:
        raise RefusedError(f"There is no {intent.subject!r} in this run; its datasets are {', '.join(wishes.order)}.")
    return _apply_to_dataset(wishes, name, intent)


def redo_done(wishes: Wishes, dataset: str, outcomes: Collection[Outcome]) -> Wishes:
    """The wishes once a redo of these outcomes has been carried out; what was asked meanwhile stays."""
    return _with_dataset(wishes, dataset, redo=tuple(o for o in wishes.datasets[dataset].redo if o not in outcomes))


def _apply_to_run(wishes: Wishes, intent: Intent) -> tuple[Wishes, str]:
    if intent.action is IntentAction.STATE:
        want = _want(intent, (Want.RUNNING, Want.STOPPED))
        now = bool(intent.value.get("now", False))
        if want is Want.RUNNING:
            return replace(wishes, run=want, run_now=False, engine=Want.RUNNING), "The run will go on."
        how = "requests in flight are aborted and made again later" if now else "requests in flight finish first"
        return replace(wishes, run=want, run_now=now), f"The run will stop: {how}."
    if intent.action is IntentAction.SET:
        return _apply_setting(wishes, str(intent.value.get("key")), intent.value.get("value"))
    if intent.action is IntentAction.SWEEP:
        return wishes, _sweep_words(intent)
    if intent.action is IntentAction.PROBE:
        return wishes, _probe_words(wishes, intent)
    raise RefusedError(f"A run knows no {intent.action.value!r}.")


def _sweep_words(intent: Intent) -> str:
    """A sweep changes no wish: it is carried out once, by the supervisor that accepts it."""
    try:
        if intent.value.get("cancel"):
            return "The sweep will end; concurrency goes back to what is wished."
        if "measured" in intent.value:
            imported = read_imported(intent.value)
            return f"The speed curve is that of {imported.source} now (levels: {len(imported.levels)})."
        levels = read_order(intent.value).levels
        return f"A sweep over {', '.join(map(str, levels))} requests in flight begins."
    except ValueError as error:
        raise RefusedError(str(error)) from error


def _probe_words(wishes: Wishes, intent: Intent) -> str:
    """Likewise a probe."""
    name = intent.value.get("api")
    if name not in wishes.api_caps:
        raise RefusedError(f"This run has no API {name!r}; it has {', '.join(wishes.api_caps) or 'none'}.")
    try:
        prompts, cap_usd = read_probe_order(intent.value)
    except ValueError as error:
        raise RefusedError(str(error)) from error
    return f"{prompts} prompts will be sent to {name}, for at most ${cap_usd:g}."


def _apply_cap(wishes: Wishes, key: str, value: Any) -> tuple[Wishes, str]:
    name, _, setting = key.removeprefix("api.").rpartition(".")
    if name not in wishes.api_caps or setting != "spend_cap_usd":
        raise RefusedError(f"{key}: no such setting, or no such API.")
    if value is not None and (isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < math.inf):
        raise RefusedError(f"{key}: {value!r} is neither an amount in USD nor none.")
    caps = {**wishes.api_caps, name: None if value is None else float(value)}
    return replace(wishes, api_caps=caps), f"{name}: never more than {'(no cap)' if value is None else f'${value:g}'}."


def _apply_setting(wishes: Wishes, key: str, value: Any) -> tuple[Wishes, str]:
    if key == "concurrency":
        if not is_count(value) or value > MAX_CONCURRENCY:
            raise RefusedError(f"concurrency: {value!r} is not a whole number from 1 to {MAX_CONCURRENCY:,}.")
        return replace(wishes, concurrency=value), f"Concurrency {wishes.concurrency} → {value}."
    if key == "order":
        names = tuple(value) if isinstance(value, list | tuple) else ()
        if not names or len(set(names)) != len(names) or not set(names) <= set(wishes.order):
            raise RefusedError(f"order: {value!r} is no list of this run's datasets ({', '.join(wishes.order)}).")
        order = (*names, *(name for name in wishes.order if name not in names))
        return replace(wishes, order=order), f"Order: {', '.join(order)}."
    if key == "deadline":
        if value is not None and (not isinstance(value, str) or read_deadline(value) is None):
            raise RefusedError(f"deadline: {value!r} is no time with its offset (ISO 8601), nor none.")
        return replace(wishes, deadline=value), f"Deadline: {value or 'none'}."
    if key.startswith("api."):
        return _apply_cap(wishes, key, value)
    parts = key.removeprefix("datasets.").rpartition(".")
    name, setting = parts[0], parts[2]
    if name not in wishes.datasets:
        raise RefusedError(f"{key}: no such setting, or no such dataset.")
    if setting in ("token_budget", "max_samples", "max_new_tokens"):
        if value is not None and not is_count(value):
            raise RefusedError(f"{key}: {value!r} is neither a whole number of at least 1 nor none.")
        old = getattr(wishes.datasets[name], setting)
        return _with_dataset(wishes, name, **{setting: value}), f"{name}: {setting} {old} → {value}."
    if setting == "at_budget" and value in tuple(AtBudget):
        return _with_dataset(wishes, name, at_budget=AtBudget(value)), f"{name}: at_budget {value}."
    raise RefusedError(f"{key} = {value!r} cannot be set while the run goes on.")


def _apply_to_dataset(wishes: Wishes, name: str, intent: Intent) -> tuple[Wishes, str]:
    if intent.action is IntentAction.STATE:
        want = _want(intent, (Want.RUNNING, Want.PAUSED, Want.KILLED))
        now = want is Want.KILLED or (want is Want.PAUSED and bool(intent.value.get("now", False)))
        words = {
            Want.RUNNING: f"{name} will run when its turn comes.",
            Want.PAUSED: f"{name} will pause; {'requests in flight are aborted' if now else 'requests in flight finish'}.",
            Want.KILLED: f"{name} will be killed; what is finished stays.",
        }
        return _with_dataset(wishes, name, want=want, now=now), words[want]
    if intent.action is IntentAction.REDO:
        try:
            outcomes = tuple(Outcome(text) for text in intent.value.get("outcomes", ()))
        except ValueError as error:
            raise RefusedError(f"redo: {error}; outcomes are {', '.join(Outcome)}.") from error
        if not outcomes:
            raise RefusedError(f"redo: name at least one outcome of {', '.join(Outcome)}.")
        both = tuple(dict.fromkeys((*wishes.datasets[name].redo, *outcomes)))
        return _with_dataset(wishes, name, redo=both), f"{name}: {', '.join(outcomes)} samples will be made again."
    if intent.action is IntentAction.ROUTE:
        try:
            route = parse_route(intent.value.get("to"), wishes.api_caps)
        except UnknownRouteError as error:
            raise RefusedError(str(error)) from error
        return _with_dataset(wishes, name, route=route), f"{name}: new requests go {route.words()}; those in flight finish."
    raise RefusedError(f"A dataset knows no {intent.action.value!r} yet.")


def _want(intent: Intent, allowed: tuple[Want, ...]) -> Want:
    value = intent.value.get("want")
    if intent.action is not IntentAction.STATE or value not in allowed:
        raise RefusedError(f"{intent.subject} can be {' or '.join(allowed)}, not {value!r}.")
    return Want(value)


def _with_dataset(wishes: Wishes, name: str, **changes: Any) -> Wishes:
    return replace(wishes, datasets={**wishes.datasets, name: replace(wishes.datasets[name], **changes)})


def _dataset_wish(config: RunConfig, dataset: DatasetConfig) -> DatasetWish:
    return DatasetWish(
        want=Want.RUNNING,
        now=False,
        token_budget=dataset.token_budget,
        max_samples=dataset.max_samples,
        at_budget=dataset.at_budget,
        max_new_tokens=config.sampling_for(dataset).max_new_tokens,
    )
