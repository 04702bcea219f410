"""Who works on what, for the forecast: the engine on the datasets that are routed to it, each API on those that go there.

Lanes go on side by side, each at its own speed; the run ends when the last of them does. Without an API there is one lane.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from backend.forecast.calibrate import Range
from backend.forecast.forecast import Assumptions, Forecast
from backend.forecast.observation import ADMITTING, Observation, SpeedHistory
from backend.job.dataset_runner import DatasetRunner
from backend.job.routes import LOCAL
from backend.job.wishes import Wishes
from backend.records import DatasetState
from backend.sweeps import Points


def lane_of(wishes: Wishes, dataset: str) -> str:
    """`local`, or the API that has a part in the dataset."""
    return wishes.datasets[dataset].route.api or LOCAL


def lanes_of(wishes: Wishes) -> dict[str, list[str]]:
    """Lane → its datasets in their order."""
    found: dict[str, list[str]] = {}
    for name in wishes.order:
        found.setdefault(lane_of(wishes, name), []).append(name)
    return found


def made_by(runner: DatasetRunner, clock: float) -> float:
    """Tokens of finished samples, also of those that were superseded since, and of requests in flight as far as their ages
    tell."""
    admission = runner.admission
    return admission.finished_tokens + runner.superseded_tokens + sum(admission.made_tokens(clock))


def engines_part(order: Sequence[str], seen: Mapping[str, Observation]) -> Observation:
    """What a "what if" starts from: the engine's lane, which is in `seen` in any case, and of what has gone to an API only what
    is in flight."""
    if list(seen) == [LOCAL]:
        return seen[LOCAL]
    place = {name: i for i, name in enumerate(order)}
    gone = [
        replace(dataset, state=DatasetState.DRAINING) if dataset.state in ADMITTING else dataset
        for lane, observation in seen.items()
        if lane != LOCAL
        for dataset in observation.datasets
    ]
    datasets = sorted((*seen[LOCAL].datasets, *gone), key=lambda dataset: place[dataset.name])
    return replace(seen[LOCAL], datasets=tuple(datasets))


def even_curve(history: SpeedHistory, requests: int) -> Points | None:
    """An API is as fast as it has requests, T(n) = s·n; `requests` are the most there will be. None before s is known."""
    busy = history.running.sum()
    made = history.tokens_per_s.sum()
    if busy <= 0 or made <= 0:
        return None
    each = float(made / busy)
    return (1.0, each), (float(max(requests, 2)), each * max(requests, 2))


def side_by_side(order: Sequence[str], lanes: Mapping[str, Forecast]) -> Forecast:
    """The run's forecast from its lanes': each quantile is that of the lane that is last by it.

    Sums of tokens add the lanes' ranges end by end: a little wider than the range of the sum.
    """
    parts = list(lanes.values())
    if len(parts) == 1:
        return parts[0]
    place = {name: i for i, name in enumerate(order)}
    datasets = sorted((dataset for part in parts for dataset in part.datasets), key=lambda d: place[d.name])
    untold = next((part for part in parts if part.remaining is None), None)
    ends = [part.remaining for part in parts if part.remaining is not None]
    remaining = None
    if untold is None:
        remaining = Range(*(max(getattr(end, q) for end in ends) for q in ("p10", "p50", "p90")))
    return Forecast(
        remaining=remaining,
        why_none=untold.why_none if untold is not None else None,
        datasets=tuple(datasets),
        remaining_tokens=_sum([part.remaining_tokens for part in parts]),
        total_tokens=_sum([part.total_tokens for part in parts]),
        assumptions=_of_the_last(parts),
    )


def _of_the_last(parts: Sequence[Forecast]) -> Assumptions | None:
    """The end rests on what is assumed of the lane that is last; what is left out is so in all of them."""
    told = [part for part in parts if part.assumptions is not None]
    if not told:
        return None
    last = max(told, key=lambda part: part.remaining.p50 if part.remaining is not None else 0.0)
    assert last.assumptions is not None, "those that tell none were left out"
    names = [part.assumptions for part in told if part.assumptions is not None]
    return replace(
        last.assumptions,
        not_begun=tuple(name for one in names for name in one.not_begun),
        left_out=tuple(name for one in names for name in one.left_out),
    )


def _sum(ranges: Sequence[Range | None]) -> Range | None:
    known = [one for one in ranges if one is not None]
    if len(known) < len(ranges):
        return None
    return Range(sum(one.p10 for one in known), sum(one.p50 for one in known), sum(one.p90 for one in known))
