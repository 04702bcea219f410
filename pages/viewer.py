"""The viewer's frame and only page: how one run goes and when it ends, for those who only watch. Nothing here can be pressed.

It imports nothing that imports `backend.control` (the linter sees to that), and shows what `backend.report.public` lets out.
"""

from __future__ import annotations

from pathlib import Path

import streamlit as st

from backend.report.formatting import DASH, compact, duration, number, share
from backend.report.live import LiveError
from backend.report.public import PublicDataset, PublicRun
from backend.run_dir import RunDir
from pages.clock import time_html
from pages.headline import headline
from pages.live.component import live_part, style
from pages.tables import Bar, Cell, Column, Figure, caption, draw_figures, draw_table, shown
from pages.viewer_routes import UNREADABLE, VARIABLE, dataset_speeds, read_public, viewed_run

EVERY_S = 5
FINGERPRINT_SHOWN = 12  # of 64 digits: enough to tell runs apart
COLUMNS = [
    Column("Dataset"),
    Column("State"),
    Column("Progress"),
    *(Column(name, right=True) for name in ("Samples", "Mean tok", "tok/s")),
]


def draw(run: RunDir) -> None:
    """The page."""
    live_part("watch", run.name, state="")
    now(run)


@st.fragment(run_every=EVERY_S)
def now(run: RunDir) -> None:
    """What changes within seconds."""
    try:
        public, speeds = read_public(run), dataset_speeds(run)
    except LiveError:
        caption(UNREADABLE)
        return
    st.html(_brand(public))
    headline(public.sentence)
    st.html(f'<div class="hw-fact-name">{_as_of(public)}</div>')
    live_part("card", run.name)
    draw_figures(_figures(public))
    draw_table(COLUMNS, [_row(d, speeds.get(d.name)) for d in public.datasets], label="Datasets")


def _brand(public: PublicRun) -> str:
    simulated = '<span class="hw-simulated">simulated</span>' if public.simulated else ""
    return (
        f'<div class="hw-brand"><span class="hw-brand-sign" aria-hidden="true">▲</span>{shown(public.name)}'
        f'<span class="hw-beside">you are watching</span>{simulated}</div>'
    )


def _as_of(public: PublicRun) -> str:
    """When this was read, how old what was read is, and what of."""
    parts = [f"as of {time_html(public.at)}", shown(public.model)]
    if public.data_age_s is not None:
        parts.insert(1, f"newest figures {duration(public.data_age_s)} old")
    if public.fingerprint:
        parts.append(f"fingerprint {shown(public.fingerprint[:FINGERPRINT_SHOWN])}")
    return " · ".join(parts)


def _figures(public: PublicRun) -> list[Figure]:
    t = public.totals
    done = sum(d.progress == 1.0 for d in public.datasets)
    return [
        Figure("Done", share(public.progress, 1.0), "", "all datasets, by their limits"),
        Figure("Datasets", number(done), f"of {len(public.datasets)}", "done"),
        Figure("Samples", number(t.finished_samples), "finished"),
        Figure("Tokens", compact(t.completion_tokens), "", "completion tokens of finished samples"),
        Figure("Tokens/s", number(public.tokens_per_s), "tok/s", "last minute, of finished samples"),
        Figure("Age", public.age or DASH, "", "since the run was created"),
    ]


def _row(d: PublicDataset, tokens_per_s: float | None) -> list[Cell]:
    of = f" / {number(d.total_samples)}" if d.total_samples is not None and d.token_budget is None else ""
    limit = f"{compact(d.completion_tokens)} / {compact(d.token_budget)} tok" if d.token_budget is not None else ""
    words = " · ".join(part for part in (share(d.progress, 1.0), limit) if part)
    mean = number(d.mean_completion_tokens)
    return [d.name, d.look, Bar(d.progress, words), f"{number(d.finished_samples)}{of}", mean, number(tokens_per_s)]


st.set_page_config(page_title="Headway", page_icon=str(Path(__file__).with_name("icon.svg")), layout="wide")
style()
viewed = viewed_run()
if viewed is None:
    st.text(f"This viewer was started without a run (${VARIABLE} is not set). Start it by: python -m backend view RUN")
else:
    draw(viewed)
