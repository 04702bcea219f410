"""The parts of the viewer's page as cells and words: figures, datasets, assumptions. Everybody's text in them is escaped."""

from __future__ import annotations

from typing import Final

from backend.report.assumptions import for_others
from backend.report.end_words import length_words, span_words
from backend.report.forecast import ForecastView
from backend.report.formatting import DASH, compact, duration, number, share
from backend.report.looks import Tone
from backend.report.public import FINGERPRINT_SHOWN, PublicDataset, PublicRun
from backend.report.watching import Watched
from pages.clock import time_html, zone
from pages.tables import Bar, Cell, Column, Figure, shown

DATASETS: Final = [
    Column("Dataset"),
    Column("State"),
    Column("Progress"),
    *(Column(name, right=True) for name in ("Samples", "Mean tok", "tok/s", "Expected end")),
]
ASSUMED: Final = [Column("Assumption"), Column("Value"), Column("Source"), Column("If 10 % worse", right=True)]


def brand_html(public: PublicRun) -> str:
    """Whose run this is, and that it is only looked at."""
    simulated = '<span class="hw-simulated">simulated</span>' if public.simulated else ""
    return (
        f'<div class="hw-brand"><span class="hw-brand-sign" aria-hidden="true">▲</span>{shown(public.name)}'
        f'<span class="hw-beside">you are watching</span>{simulated}</div>'
    )


def how_it_goes_html(public: PublicRun) -> str:
    """What runs and how far it is."""
    return f'<div class="hw-root">{shown(public.sentence)}</div>'


def as_of_html(public: PublicRun) -> str:
    """When this was read, how old what was read is, and what of."""
    parts = [f"as of {time_html(public.at)}", shown(public.model)]
    if public.data_age_s is not None:
        parts.insert(1, f"newest figures {duration(public.data_age_s)} old")
    if public.fingerprint:
        parts.append(f"fingerprint {shown(public.fingerprint[:FINGERPRINT_SHOWN])}")
    return f'<div class="hw-fact-name">{" · ".join(parts)}</div>'


def figures_of(public: PublicRun) -> list[Figure]:
    """The large numbers."""
    t = public.totals
    done = sum(d.look.tone is Tone.DONE for d in public.datasets)
    return [
        Figure("Done", share(public.progress, 1.0), "", "all datasets, by their limits"),
        Figure("Datasets", number(done), f"of {len(public.datasets)}", "done"),
        Figure("Samples", number(t.finished_samples), "finished"),
        Figure("Tokens", compact(t.completion_tokens), "", "completion tokens of finished samples"),
        Figure("Tokens/s", number(public.tokens_per_s), "tok/s", "last minute, of finished samples"),
        Figure("Age", public.age or DASH, "", "from the run's creation on"),
    ]


def dataset_row(d: PublicDataset, seen: Watched) -> list[Cell]:
    """A row of `DATASETS`."""
    of = f" / {number(d.total_samples)}" if d.total_samples is not None and d.token_budget is None else ""
    limit = f"{compact(d.completion_tokens)} / {compact(d.token_budget)} tok" if d.token_budget is not None else ""
    words = " · ".join(part for part in (share(d.progress, 1.0), limit) if part)
    speed = number(seen.tokens_per_s.get(d.name)) if d.look.tone is Tone.ACTIVE else DASH
    end = seen.dataset_ends.get(d.name)
    ends = DASH if end is None else span_words(end, seen.public.at, zone())
    samples = f"{number(d.finished_samples)}{of}"
    return [d.name, d.look, Bar(d.progress, words), samples, number(d.mean_completion_tokens), speed, ends]


def assumption_rows(forecast: ForecastView) -> list[list[Cell]]:
    """Rows of `ASSUMED`."""
    rows = map(for_others, forecast.assumptions)
    return [
        [row.name, row.value, row.source, DASH if row.later_s is None else f"{length_words(row.later_s)} later"] for row in rows
    ]
