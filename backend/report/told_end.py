"""When a run ends, for the command line: one flat value for `--json`, and one sentence in the reader's own time."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, tzinfo

from backend import forecasts
from backend.report.ending import EndKind, ending, sentence
from backend.report.views import EndView, RunView
from backend.run_dir import RunDir, RunDirError


def with_end(run: RunDir, view: RunView, zone: tzinfo) -> tuple[RunView, str | None]:
    """The view with its forecast, and the sentence: "Done today 20:56–20:59, most likely 20:57 (CET)."

    The sentence is None before the first start. A forecast that cannot be read becomes a note.
    """
    try:
        end = ending(view, forecasts.read_newest(run))
    except RunDirError as error:
        return replace(view, notes=(*view.notes, f"The forecast cannot be read: {error}")), None
    span, left = end.span, end.remaining
    told = EndView(
        kind=end.kind.value,
        said_at=end.said_at,
        p10_at=span.p10 if span else None,
        p50_at=span.p50 if span else None,
        p90_at=span.p90 if span else None,
        p10_s=left.p10 if left else None,
        p50_s=left.p50 if left else None,
        p90_s=left.p90 if left else None,
        why=end.why,
        left_out=end.left_out,
    )
    if view.phase is None and end.kind is EndKind.UNTOLD:
        return replace(view, forecast=told), None
    words = sentence(end, view.at, zone)
    if span is not None or end.finished_at is not None:
        words = f"{words.removesuffix('.')} ({datetime.fromtimestamp(view.at, zone):%Z})."
    return replace(view, forecast=told), words
