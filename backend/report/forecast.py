"""Everything that is told of a run's end, as values: the Forecast page and what is shared draw it, and add nothing.

The words of the end are `ending.py`'s, the rows of assumptions `assumptions.py`'s, the charts `forecast_charts.py`'s.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import pairwise
from typing import Final

from backend import config, forecasts, telemetry_store
from backend.config import RunConfig
from backend.forecast.calibrate import OWN_RESULTS_NEEDED
from backend.forecast.forecast import DatasetForecast
from backend.forecast.paths import Paths, paths
from backend.forecasts import Basis, RangeSaid, Said, held_share
from backend.heartbeat import has_table, reading
from backend.records import DatasetState
from backend.report.assumptions import Assumption, assumption_rows
from backend.report.chart_labels import Mark
from backend.report.end_words import Span, span_after
from backend.report.ending import Ending, EndKind, dataset_ends, ending
from backend.report.headline import OVER, naive_eta_s, naive_speed
from backend.report.live_series import first_sample_at
from backend.report.live_telemetry import ALL, read_events
from backend.report.status import read_status
from backend.report.views import RunView
from backend.run_dir import RunDir

HISTORY_POINTS: Final = 300


@dataclass(frozen=True, slots=True)
class DatasetEnd:
    """One dataset on the time axis. Moments in epoch seconds; None where they are not known."""

    name: str
    state: DatasetState | None
    begun_at: float | None
    ended_at: float | None
    begins_at: float | None  # expected, where it has not begun
    end: Span | None  # expected, while the run works
    forecast: DatasetForecast | None


@dataclass(frozen=True, slots=True)
class EndSaid:
    """The end as it was said at `at`, as if the run had gone on working from then on."""

    at: float
    end: Span


@dataclass(frozen=True, slots=True)
class Record:
    """How often ranges held: of all runs in this folder, a result for each dataset or run that has ended."""

    results: int
    held_share: float | None
    correcting: int  # of these results correct the ranges; 0: the built-in calibration is used


@dataclass(frozen=True, slots=True)
class Finished:
    """Tokens finished so far, all datasets together: `tokens[i]` at `at[i]`, epoch seconds; a point covers `step_s`."""

    at: tuple[float, ...] = ()
    tokens: tuple[float, ...] = ()
    step_s: float = 1.0

    def until(self, at: float) -> Finished:
        """What was finished by then: where a band begins at `at`, the line may not run on beside it."""
        count = bisect_right(self.at, at)
        return Finished(self.at[:count], self.tokens[:count], self.step_s)


@dataclass(frozen=True, slots=True)
class ForecastView:
    """All that is told of a run's end at `at`."""

    view: RunView
    at: float
    ending: Ending
    said: Said | None
    basis: Basis | None
    datasets: tuple[DatasetEnd, ...]
    finished: Finished
    band: Paths | None  # from `basis.at` on; None unless the run works
    history: tuple[EndSaid, ...]  # oldest first, at most about HISTORY_POINTS
    changes: tuple[Mark, ...]  # when what is wanted changed
    events: tuple[Mark, ...]
    assumptions: tuple[Assumption, ...]
    record: Record
    naive_s: float | None  # what simple extrapolation says
    deadline: float | None  # epoch seconds
    settings: RunConfig


def forecast_view(run: RunDir, now: float) -> ForecastView:
    """`now` in epoch seconds. Costs three forecasts, about 0.1 s of a core. Raises ConfigError, RunDirError."""
    settings = config.load(run.config)
    view = read_status(run, now, counted=False, settings=settings)
    said, basis = forecasts.read_newest(run), forecasts.read_basis(run)
    end = ending(view, said)
    goes_on = end.kind is EndKind.GOING
    ranges = forecasts.read_ranges(run)
    begun, ended = _turns(run)
    own = forecasts.read_own_results(run)
    assumed = said.forecast.assumptions if said else None
    finished, events = _past(run, now)
    return ForecastView(
        view=view,
        at=now,
        ending=end,
        said=said,
        basis=basis,
        datasets=_datasets(view, said, begun, ended),
        finished=finished,
        band=paths(basis.observation, basis.calibration) if basis is not None and goes_on else None,
        history=_thinned(ranges),
        changes=_changes(ranges, forecasts.read_reasons(run)),
        events=events,
        assumptions=assumption_rows(said.forecast, basis) if said is not None and basis is not None else (),
        record=Record(len(own), held_share(own), assumed.own_results if assumed else 0),
        naive_s=naive_eta_s(view.datasets, naive_speed(said)) if end.kind in (EndKind.GOING, EndKind.STANDING) else None,
        deadline=deadline_of(view),
        settings=settings,
    )


def deadline_of(view: RunView) -> float | None:
    """Epoch seconds; None without one."""
    return datetime.fromisoformat(view.deadline).timestamp() if view.deadline else None


def record_words(record: Record) -> str:
    """How much the ranges are worth, by their past: "8 of 10 ranges held so far: 83 %, n = 29"."""
    if record.held_share is None:
        return "8 of 10 ranges should hold. None has been put to the test here: the built-in calibration is used."
    held = f"{record.held_share:.0%}".replace("%", " %")
    if record.correcting:
        return f"8 of 10 ranges should hold. So far: {held}, n = {record.results}; the ranges are corrected by that."
    few = "below ten that says little"
    why = few if record.results < OWN_RESULTS_NEEDED else "this was said before there were ten"
    return f"8 of 10 ranges should hold. So far: {held}, n = {record.results}; {why}, and the built-in calibration is used."


def _thinned(ranges: Sequence[RangeSaid]) -> tuple[EndSaid, ...]:
    """About HISTORY_POINTS of them: the last of each stretch, and those at which what was wanted changed."""
    step = max(-(-len(ranges) // HISTORY_POINTS), 1)
    last = len(ranges) - 1
    kept = (
        one
        for i, one in enumerate(ranges)
        if (last - i) % step == 0 or (i > 0 and one.plan != ranges[i - 1].plan) or (i < last and one.plan != ranges[i + 1].plan)
    )
    return tuple(EndSaid(one.at, span_after(one.at, one.range)) for one in kept)


def _changes(ranges: Sequence[RangeSaid], reasons: dict[int, str]) -> tuple[Mark, ...]:
    changed = [one for before, one in pairwise(ranges) if one.plan != before.plan]
    return tuple(Mark(one.at, reasons.get(one.plan, "what is wanted changed")) for one in changed)


def _turns(run: RunDir) -> tuple[dict[str, float], dict[str, float]]:
    """Dataset → when it first ran, and when it last ended; epoch seconds."""
    with reading(run.state) as con:
        if con is None or not has_table(con, "events"):
            return {}, {}
        rows = con.execute(
            "SELECT subject, kind, MIN(at), MAX(at) FROM events WHERE kind IN"
            " ('dataset.running', 'dataset.done', 'dataset.killed', 'dataset.failed') GROUP BY subject, kind"
        ).fetchall()
    begun: dict[str, float] = {}
    ended: dict[str, float] = {}
    for subject, kind, first, last in rows:
        name = str(subject).removeprefix("dataset:")
        if kind == "dataset.running":
            begun[name] = first
        else:
            ended[name] = max(last, ended.get(name, last))
    return begun, ended


def _past(run: RunDir, now: float) -> tuple[Finished, tuple[Mark, ...]]:
    """Finished tokens since the first sample, and what happened meanwhile."""
    with reading(run.state) as con:
        if con is None or not has_table(con, "events"):
            return Finished(), ()
        began = first_sample_at(con, "driver_samples", ALL) if has_table(con, "rollups") else None
        series = None
        if began is not None:
            name = "completion_tokens_total"
            series = telemetry_store.read_series(
                con, "driver_samples", ALL, began, now + 1, max_points=HISTORY_POINTS, names=[name]
            )
        events = read_events(con, 0.0 if began is None else began - 1)
    known = [] if series is None else [(at, v) for at, v in zip(series.at, series.values[name], strict=True) if v is not None]
    marks = tuple(Mark(event["at"], event["words"], event["severity"]) for event in events)
    step_s = series.step_s if series is not None else 1.0
    return Finished(tuple(float(at) for at, _ in known), tuple(float(v) for _, v in known), step_s), marks


def _datasets(view: RunView, said: Said | None, begun: dict[str, float], ended: dict[str, float]) -> tuple[DatasetEnd, ...]:
    by_name = {one.name: one for one in said.forecast.datasets} if said else {}
    ends = dataset_ends(view, said)
    rows: list[DatasetEnd] = []
    before: float | None = said.at if said else None  # when the one before is likely to end
    for dataset in view.datasets:
        name, end = dataset.name, ends.get(dataset.name)
        first, last = begun.get(name), ended.get(name) if dataset.state in OVER else None
        begins = min(before, end.p50) if first is None and end is not None and before is not None else None
        rows.append(DatasetEnd(name, dataset.state, first, last, begins, end, by_name.get(name)))
        before = end.p50 if end is not None else before
    return tuple(rows)
