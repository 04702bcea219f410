"""PURE: the six figures at the head of a run and its GPUs, as they are shown: value, unit, and one dim line of context."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from backend.forecast.calibrate import Range
from backend.forecasts import Said
from backend.records import DatasetState
from backend.report.formatting import DASH, compact, number, plural, share
from backend.report.live_series import mean_of_last
from backend.report.views import RunView

Latest = Mapping[str, Mapping[str, Any]]  # series → its newest row
Trend = tuple[float | None, ...]
NAIVE_DIFFERS: Final = 0.02  # by more than this share of it, the naive mean is told beside the honest one
NOT_NOW: Final = "not measured now"


@dataclass(frozen=True, slots=True)
class Figure:
    """One figure. `of` stands small beside the value; `trend` is drawn as a line without an axis."""

    key: str
    label: str
    value: str
    of: str
    note: str
    trend: Trend = ()


@dataclass(frozen=True, slots=True)
class GpuFigures:
    """One GPU or MIG slice. What the device does not tell is "–"."""

    key: str
    label: str
    temperature: str
    power: str
    memory: str
    utilization: str
    trend: Trend = ()


@dataclass(frozen=True, slots=True)
class Trends:
    """The last quarter of an hour in points of 15 s, all replicas and datasets together."""

    decode_tokens_per_s: Trend = ()
    useful_tokens_per_s: Trend = ()
    requests_per_s: Trend = ()


@dataclass(frozen=True, slots=True)
class HonestMean:
    """How long the completions of the dataset at work are, those in flight reckoned with."""

    dataset: str
    tokens: Range
    finished_so_far: float | None  # the mean of the finished ones alone


def honest_mean(view: RunView, said: Said | None) -> HonestMean | None:
    """Of the first dataset that is at work; None where none is, or nothing can be said of it."""
    active = next((d.name for d in view.datasets if d.state in (DatasetState.RUNNING, DatasetState.DRAINING)), None)
    found = next((one for one in said.forecast.datasets if one.name == active), None) if said is not None else None
    if found is None or found.mean_tokens is None:
        return None
    return HonestMean(found.name, found.mean_tokens, found.naive_mean_tokens)


def figures(
    view: RunView,
    driver: Mapping[str, Any],
    engine: Latest,
    decode_now: float | None,
    trends: Trends,
    *,
    mean: HonestMean | None = None,
) -> list[Figure]:
    """In the order in which they stand. `driver` is the newest row over all datasets ({} where there is none)."""
    return [
        _speed(decode_now, driver, trends),
        _requests(driver, trends),
        _honest(view, mean) if mean is not None else _mean(view, driver),
        _in_flight(view, driver, engine),
        _tokens(view),
        _samples(view, driver),
    ]


def gpu_figures(latest: Latest, trends: Mapping[str, Trend]) -> list[GpuFigures]:
    """The GPUs in the order of their numbers."""
    ordered = sorted(latest.items(), key=lambda item: (item[1]["index"] is None, item[1]["index"] or 0, item[0]))
    return [_gpu(key, row, trends.get(key, ())) for key, row in ordered]


def _speed(decode_now: float | None, driver: Mapping[str, Any], trends: Trends) -> Figure:
    useful = mean_of_last(trends.useful_tokens_per_s, 20)
    if not driver:
        return Figure("speed", "Tokens/s", DASH, "tok/s", NOT_NOW)
    if decode_now is None and not any(v is not None for v in trends.decode_tokens_per_s):
        note = "of finished samples, 10 s; the server tells no rate"
        return Figure("speed", "Tokens/s", number(driver.get("useful_tokens_per_s")), "tok/s", note, trends.useful_tokens_per_s)
    decode = mean_of_last(trends.decode_tokens_per_s, 20)
    note = f"{number(decode)} in 5 min · useful {number(useful)}"
    return Figure("speed", "Tokens/s", number(decode_now), "tok/s", note, trends.decode_tokens_per_s)


def _requests(driver: Mapping[str, Any], trends: Trends) -> Figure:
    if not driver:
        return Figure("requests", "Requests/s", DASH, "req/s", NOT_NOW)
    last_minute = mean_of_last(trends.requests_per_s, 4)
    quarter = mean_of_last(trends.requests_per_s, len(trends.requests_per_s))
    return Figure("requests", "Requests/s", _rate(last_minute), "req/s", f"last minute · {_rate(quarter)} in 15 min",
                  trends.requests_per_s)  # fmt: skip


def _honest(view: RunView, mean: HonestMean) -> Figure:
    told = mean.tokens
    note = f"{number(told.p10)}–{number(told.p90)}"
    if mean.finished_so_far is not None and abs(mean.finished_so_far - told.p50) > NAIVE_DIFFERS * told.p50:
        note += f"; finished so far: {number(mean.finished_so_far)}"
    if len(view.datasets) > 1:
        note += f" · {mean.dataset}"
    return Figure("mean", "Mean completion", number(told.p50), "tok", note)


def _mean(view: RunView, driver: Mapping[str, Any]) -> Figure:
    recent, t = driver.get("mean_completion_tokens_recent"), view.totals
    answered = (t.finished_samples or 0) - (t.rejected or 0)
    overall = t.completion_tokens / answered if t.completion_tokens is not None and answered > 0 else None
    return Figure("mean", "Mean completion", number(recent), "tok", f"last 5 min · all so far {number(overall)}")


def _in_flight(view: RunView, driver: Mapping[str, Any], engine: Latest) -> Figure:
    if not driver:
        return Figure("in_flight", "In flight", DASH, f"of {number(view.concurrency)}", NOT_NOW)
    queued = _sum(row["queued"] for row in engine.values())
    fullest = max((row["token_usage"] for row in engine.values() if row["token_usage"] is not None), default=None)
    retracted = _sum(row["retracted_total"] for row in engine.values())
    note = f"{number(queued)} queued · KV {share(fullest, 1.0)} · {number(retracted)} retracted"
    elsewhere = sum(api.in_flight for api in view.apis)  # slots of their own
    here = None if view.in_flight is None else max(0, view.in_flight - elsewhere)
    note += f" · {number(elsewhere)} more at APIs" if elsewhere else ""
    return Figure("in_flight", "In flight", number(here), f"of {number(view.concurrency)}", note)


def _tokens(view: RunView) -> Figure:
    done, budgets = view.totals.completion_tokens, [d.token_budget for d in view.datasets]
    if None not in budgets:
        budget = sum(b for b in budgets if b is not None)
        return Figure("tokens", "Tokens", compact(done), f"of {compact(budget)}", f"{share(done, budget)} of all budgets")
    with_budget = [d for d in view.datasets if d.token_budget is not None]
    note = "completion tokens of finished samples"
    if with_budget:
        part = sum(d.completion_tokens or 0 for d in with_budget)
        note = f"{share(part, sum(d.token_budget or 0 for d in with_budget))} of {plural(len(with_budget), 'budget')}"
    return Figure("tokens", "Tokens", compact(done), "finished", note)


def _samples(view: RunView, driver: Mapping[str, Any]) -> Figure:
    totals = [d.total_samples for d in view.datasets]
    whole = f"of ≤ {_short(sum(t for t in totals if t is not None))}" if None not in totals else "finished"
    note = f"{number(view.totals.rejected)} rejected"
    if driver:
        note += f" · {number(driver['retried_total'])} sent again"
    return Figure("samples", "Samples", number(view.totals.finished_samples), whole, note)


def _gpu(key: str, row: Mapping[str, Any], trend: Trend) -> GpuFigures:
    used, total = row["memory_used_bytes"], row["memory_total_bytes"]
    return GpuFigures(
        key=key,
        label=f"GPU {row['index']:.0f}" if row["index"] is not None else key[:12],
        temperature=_with_unit(row["temperature_c"], " °C"),
        power=_with_unit(row["power_w"], " W"),
        memory=DASH if used is None or not total else f"{used / 2**30:.0f}/{total / 2**30:.0f} GiB",
        utilization=_with_unit(row["utilization_percent"], "%"),
        trend=trend,
    )


def _with_unit(value: float | None, unit: str) -> str:
    return DASH if value is None else f"{value:.0f}{unit}"


def _short(count: int) -> str:
    return number(count) if count < 100_000 else compact(count)


def _rate(value: float | None) -> str:
    return number(value, 0 if value is not None and value >= 100 else 1 if value is not None and value >= 10 else 2)


def _sum(values: Any) -> float | None:
    known: Sequence[float] = [v for v in values if v is not None]
    return sum(known) if known else None
