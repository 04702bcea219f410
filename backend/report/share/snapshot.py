"""What is shared of a run, as values and words: all forms say this and nothing else. Read once, at one moment."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, tzinfo

from backend.report.assumptions import Assumption, for_others
from backend.report.end_words import span_words
from backend.report.ending import EndKind, end_words
from backend.report.forecast import DatasetEnd, ForecastView, forecast_view, record_words
from backend.report.formatting import DASH, compact, duration, number
from backend.report.looks import Look
from backend.report.public import FINGERPRINT_SHOWN, PublicDataset, PublicRun, public_run
from backend.report.share.fan import Band, Fan
from backend.run_dir import RunDir


@dataclass(frozen=True, slots=True)
class SharedDataset:
    """One dataset, as it is shown."""

    name: str
    look: Look
    progress: float | None  # 0..1
    done: str  # "41,280 of 60,000 samples"
    mean: str  # completion tokens
    ends: str  # "Thursday 3 December 09:10–15:40"


@dataclass(frozen=True, slots=True)
class Snapshot:
    """All of it. Words that tell times tell them in `zone`, with its name where it is not plain."""

    run: PublicRun
    zone: tzinfo
    answer: str  # "Done Thursday 3 December 09:10–15:40"
    likely: str  # ", most likely 12:05 (CET)": what may stand fainter behind it; may be empty
    as_of: str  # "30 November 2026 19:31 CET (18:31 UTC)"
    data_age: str  # "newest figures 2 s old"
    fan: Fan | None  # None before the first sample is finished
    datasets: tuple[SharedDataset, ...]
    assumptions: tuple[Assumption, ...]
    record: str | None  # how often such ranges held; None where no range is told

    @property
    def sentence(self) -> str:
        """The answer whole."""
        return f"{self.answer}{self.likely}."

    @property
    def whose(self) -> str:
        """Which run, of which model, and how to know that it is the same one."""
        print_ = f" · fingerprint {self.run.fingerprint[:FINGERPRINT_SHOWN]}" if self.run.fingerprint else ""
        return f"{self.run.name} · {self.run.model}{print_}"


def take_snapshot(run: RunDir, now: float, zone: tzinfo) -> Snapshot:
    """What can be said at `now` (epoch seconds). Raises ConfigError, RunDirError."""
    return snapshot_of(forecast_view(run, now), zone)


def snapshot_of(forecast: ForecastView, zone: tzinfo) -> Snapshot:
    """The same, from what was read already."""
    run, now = public_run(forecast.view), forecast.at
    answer, likely = end_words(forecast.ending, now, zone, later=True, others=True)
    if forecast.ending.kind in (EndKind.GOING, EndKind.FINISHED):
        likely += f" ({datetime.fromtimestamp(now, zone):%Z})"
    return Snapshot(
        run=run,
        zone=zone,
        answer=answer,
        likely=likely,
        as_of=as_of_words(now, zone),
        data_age="nothing was measured yet" if run.data_age_s is None else f"newest figures {duration(run.data_age_s)} old",
        fan=_fan(forecast),
        datasets=tuple(map(_dataset, run.datasets, forecast.datasets, [zone] * len(run.datasets))),
        assumptions=tuple(map(for_others, forecast.assumptions)),
        record=record_words(forecast.record) if forecast.ending.remaining is not None else None,
    )


def as_of_words(at: float, zone: tzinfo) -> str:
    """ "30 November 2026 19:31 CET (18:31 UTC)"; another day in UTC is told."""
    here, utc = datetime.fromtimestamp(at, zone), datetime.fromtimestamp(at, UTC)
    if here.utcoffset() == utc.utcoffset():
        return f"{utc.day} {utc:%B %Y %H:%M} UTC"
    day = "" if here.date() == utc.date() else f"{utc.day} {utc:%B} "
    return f"{here.day} {here:%B %Y %H:%M %Z} ({day}{utc:%H:%M} UTC)"


def _fan(forecast: ForecastView) -> Fan | None:
    finished, band, basis = forecast.finished, forecast.band, forecast.basis
    if not finished.at:
        return None
    if band is None or basis is None:
        return Fan(finished.at, finished.tokens, None, None)
    at = tuple(basis.at + after_s for after_s in band.after_s)
    finished = finished.until(basis.at)
    if not finished.at:  # the forecast is older than the first sample
        return None
    return Fan(finished.at, finished.tokens, Band(at, band.p10, band.p50, band.p90), forecast.ending.span)


def _dataset(public: PublicDataset, found: DatasetEnd, zone: tzinfo) -> SharedDataset:
    if public.token_budget is not None:
        done = f"{compact(public.completion_tokens)} of {compact(public.token_budget)} tokens"
    elif public.total_samples is not None:
        done = f"{number(public.finished_samples)} of {number(public.total_samples)} samples"
    else:
        done = f"{number(public.finished_samples)} samples"
    ends = DASH if found.end is None else span_words(found.end, None, zone)
    mean = number(public.mean_completion_tokens)
    return SharedDataset(public.name, public.look, public.progress, done, mean, ends)
