"""Reads an observation from JSON, with all lengths one by one, and says which field cannot be.

The format is described in docs/forecast.md. Unknown fields are ignored.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Final, TypeVar

import numpy as np

from backend.forecast.observation import BudgetStop, DatasetNow, Floats, Observation, SpeedHistory, count_dataset
from backend.records import DatasetState

_MISSING: Final = object()
ESTIMATE_SLACK: Final = 1.1  # tokens made so far are reckoned from speeds, and may come out above the cap
E = TypeVar("E", BudgetStop, DatasetState)


class ObservationError(ValueError):
    """An observation that cannot be; the message begins with the field."""

    def __init__(self, field: str, problem: str) -> None:
        super().__init__(f"{field}: {problem}")
        self.field = field


def observation_from_json(value: Any) -> Observation:
    """The observation in a parsed JSON object. Raises ObservationError."""
    if not isinstance(value, Mapping):
        raise ObservationError("observation", f"must be an object, not {_shown(value)}")
    active_s = _number(value, "active_s", "active_s", least=0.0)
    concurrency = _integer(value, "concurrency", "concurrency", least=1)
    history = _history(value, active_s)
    datasets = _get(value, "datasets", "datasets")
    if not isinstance(datasets, list):
        raise ObservationError("datasets", f"must be a list, not {_shown(datasets)}")
    read = tuple(_dataset(dataset, f"datasets[{i}]", i) for i, dataset in enumerate(datasets))
    names = [dataset.name for dataset in read]
    for i, name in enumerate(names):
        if name in names[:i]:
            raise ObservationError(f"datasets[{i}].name", f"{name!r} is there twice")
    overlap = value.get("overlap", False)
    if not isinstance(overlap, bool):
        raise ObservationError("overlap", f"must be true or false, not {_shown(overlap)}")
    return Observation(
        active_s=active_s,
        concurrency=concurrency,
        datasets=read,
        history=history,
        speed_curve=_curve(value.get("speed_curve")),
        budget_stop=_choice(BudgetStop, value.get("at_budget", "drain"), "at_budget"),
        overlap=overlap,
    )


def _history(value: Mapping[str, Any], active_s: float) -> SpeedHistory:
    bin_s = _number(value, "bin_s", "bin_s", above=0.0)
    speed, running = _numbers(value, "tokens_per_s", "tokens_per_s"), _numbers(value, "running", "running")
    if len(speed) != len(running):
        raise ObservationError("running", f"has {len(running)} bins, but tokens_per_s has {len(speed)}")
    if len(speed) * bin_s > active_s + 2 * bin_s:
        raise ObservationError("tokens_per_s", f"{len(speed)} bins of {bin_s:g} s are more than active_s ({active_s:g})")
    return SpeedHistory(bin_s, speed, running)


def _curve(value: Any) -> tuple[tuple[float, float], ...] | None:
    if value is None:
        return None
    if not isinstance(value, list):
        raise ObservationError("speed_curve", f"must be a list of [requests, tokens/s] or null, not {_shown(value)}")
    points = []
    for i, pair in enumerate(value):
        if not isinstance(pair, list) or len(pair) != 2 or not all(_is_number(x) and x >= 0 for x in pair):
            raise ObservationError(f"speed_curve[{i}]", f"must be [requests, tokens/s], neither below 0, not {_shown(pair)}")
        points.append((float(pair[0]), float(pair[1])))
    if not any(n > 0 and speed > 0 for n, speed in points):
        raise ObservationError("speed_curve", "has no level with a speed above 0; null says that there is none")
    return tuple(points)


def _dataset(value: Any, at: str, number: int) -> DatasetNow:
    if not isinstance(value, Mapping):
        raise ObservationError(at, f"must be an object, not {_shown(value)}")
    name = value.get("name", f"dataset {number + 1}")
    if not isinstance(name, str):
        raise ObservationError(f"{at}.name", f"must be a text, not {_shown(name)}")
    state = _choice(DatasetState, _get(value, "state", f"{at}.state"), f"{at}.state")
    prompts = _integer(value, "prompts", f"{at}.prompts", least=0)
    budget = None if value.get("token_budget") is None else _integer(value, "token_budget", f"{at}.token_budget", least=0)
    cap = None if value.get("max_new_tokens") is None else _integer(value, "max_new_tokens", f"{at}.max_new_tokens", least=1)
    finished = _numbers(value, "finished_lengths", f"{at}.finished_lengths")
    in_flight = _numbers(value, "in_flight_tokens", f"{at}.in_flight_tokens")
    if cap is not None:
        _check_cap(finished, cap, f"{at}.finished_lengths")
        _check_cap(in_flight, cap * ESTIMATE_SLACK + 16, f"{at}.in_flight_tokens")
    if len(finished) > prompts:
        raise ObservationError(f"{at}.finished_lengths", f"{len(finished)} samples are more than prompts ({prompts})")
    if value.get("started") is not None:
        started = _integer(value, "started", f"{at}.started", least=0)
        if started > prompts:
            raise ObservationError(f"{at}.started", f"{started} prompts are more than prompts ({prompts})")
        if started < len(finished) + len(in_flight):
            known = f"finished ({len(finished)}) and in flight ({len(in_flight)})"
            raise ObservationError(f"{at}.started", f"{started} prompts are fewer than are {known}")
    return count_dataset(
        name,
        state,
        prompts=prompts,
        token_budget=budget,
        max_new_tokens=cap,
        finished_lengths=finished,
        in_flight_tokens=in_flight.tolist(),
    )


def _check_cap(lengths: Floats, cap: float, at: str) -> None:
    if len(lengths) and lengths.max() > cap:
        i = int(lengths.argmax())
        raise ObservationError(f"{at}[{i}]", f"{lengths[i]:g} tokens are more than max_new_tokens allows ({cap:g})")


def _get(value: Mapping[str, Any], key: str, at: str) -> Any:
    found = value.get(key, _MISSING)
    if found is _MISSING:
        raise ObservationError(at, "is missing")
    return found


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def _number(value: Mapping[str, Any], key: str, at: str, *, least: float = -math.inf, above: float = -math.inf) -> float:
    found = _get(value, key, at)
    if not _is_number(found) or found < least or found <= above:
        bound = f"a number of at least {least:g}" if above == -math.inf else f"a number above {above:g}"
        raise ObservationError(at, f"must be {bound}, not {_shown(found)}")
    return float(found)


def _integer(value: Mapping[str, Any], key: str, at: str, *, least: int) -> int:
    found = _get(value, key, at)
    if not _is_number(found) or found != int(found) or found < least:
        raise ObservationError(at, f"must be a whole number of at least {least}, not {_shown(found)}")
    return int(found)


def _numbers(value: Mapping[str, Any], key: str, at: str) -> Floats:
    found = _get(value, key, at)
    if not isinstance(found, list):
        raise ObservationError(at, f"must be a list of numbers, not {_shown(found)}")
    for i, number in enumerate(found):
        if not _is_number(number) or number < 0:
            raise ObservationError(f"{at}[{i}]", f"must be a number of at least 0, not {_shown(number)}")
    return np.array(found, dtype=np.float64)


def _choice(kind: type[E], value: Any, at: str) -> E:
    names = [str(member.value) for member in kind]
    if value not in names:
        raise ObservationError(at, f"must be one of {', '.join(names)}, not {_shown(value)}")
    return kind(value)


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 40 else text[:37] + "..."
