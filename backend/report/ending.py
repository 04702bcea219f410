"""PURE: when a run ends: a range of moments, work that waits for the run to go on, or why nothing is said.

The words of moments are `end_words.py`'s. Everything that tells an end (Overview, the Forecast page, what is shared) asks here.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import tzinfo
from enum import StrEnum
from typing import Final

from backend.forecast.calibrate import Range
from backend.forecasts import Said
from backend.heartbeat import SupervisorState
from backend.records import DatasetState, RunPhase
from backend.report.end_words import LONGEST_S, Span, done_words, moment_words, span_after, work_words
from backend.report.headline import OVER
from backend.report.views import RunView

_WAITS_FOR_SOMEBODY: Final = frozenset({DatasetState.PAUSED, DatasetState.HELD, DatasetState.KILLED, DatasetState.FAILED})
_NAMED: Final = 3  # datasets named before the others are only counted


class EndKind(StrEnum):
    """What can be said of an end."""

    UNTOLD = "untold"  # nothing; `why` says why
    GOING = "going"  # the run works: `span`
    STANDING = "standing"  # it does not work now: `remaining` begins when it goes on
    NOTHING_LEFT = "nothing_left"  # what is left does not go on by itself
    FINISHED = "finished"


@dataclass(frozen=True, slots=True)
class Ending:
    """When a run ends. Moments in epoch seconds, `remaining` in active seconds."""

    kind: EndKind
    said_at: float | None = None  # when it was reckoned
    span: Span | None = None
    remaining: Range | None = None
    why: str | None = None
    left_out: tuple[str, ...] = ()  # datasets that wait for somebody
    finished_at: float | None = None


def ending(view: RunView, said: Said | None) -> Ending:
    """What the newest forecast means for a run in this state."""
    state = view.supervisor.state
    if view.phase is RunPhase.FINISHED and state is SupervisorState.LEFT:
        return Ending(EndKind.FINISHED, finished_at=view.supervisor.heartbeat_at)
    if state is SupervisorState.NEVER_STARTED:
        return Ending(EndKind.UNTOLD, why="the run has not been started")
    if said is None:
        soon = state in (SupervisorState.ALIVE, SupervisorState.NOT_ANSWERING)
        why = "the first one comes within a minute of work" if soon else "none was made while the run worked"
        return Ending(EndKind.UNTOLD, why=why)
    assumed = said.forecast.assumptions
    left_out = assumed.left_out if assumed else tuple(d.name for d in view.datasets if d.state in _WAITS_FOR_SOMEBODY)
    remaining = said.forecast.remaining
    if remaining is None:
        return Ending(EndKind.UNTOLD, said.at, why=said.forecast.why_none, left_out=left_out)
    if remaining.p50 >= LONGEST_S:
        why = "at the present speed the work would take more than a thousand years"
        return Ending(EndKind.UNTOLD, said.at, why=why, left_out=left_out)
    if remaining.p90 <= 0:
        return Ending(EndKind.NOTHING_LEFT, said.at, remaining=remaining, left_out=left_out)
    if said.active and state is SupervisorState.ALIVE:
        return Ending(EndKind.GOING, said.at, span_after(said.at, remaining), remaining, left_out=left_out)
    return Ending(EndKind.STANDING, said.at, remaining=remaining, left_out=left_out)


def dataset_ends(view: RunView, said: Said | None) -> dict[str, Span]:
    """Dataset → when it is expected to end, of those that go on in a run at work."""
    if said is None or ending(view, said).kind is not EndKind.GOING:
        return {}
    over = {d.name for d in view.datasets if d.state in OVER}
    return {
        one.name: span_after(said.at, one.ends_in)
        for one in said.forecast.datasets
        if one.ends_in is not None and one.ends_in.p90 > 0 and one.name not in over
    }


def end_words(end: Ending, now: float, zone: tzinfo, *, later: bool = False, others: bool = False) -> tuple[str, str]:
    """The answer in words, and what may stand fainter behind it: ("Done Thursday 09:10–15:40", ", most likely 12:05").

    `later`: for words that are read at another time; `others`: by those who do not operate the run.
    """
    today = None if later else now
    without = f", without {names_words(end.left_out)}" if end.left_out else ""
    if end.span is not None:
        done, likely = done_words(end.span, today, zone)
        if end.span.p90 < now:
            return "Done any moment", f", expected {done[5:]}{without}"
        return done, likely + without
    if end.kind is EndKind.FINISHED:
        return (f"Finished {moment_words(end.finished_at, today, zone)}" if end.finished_at is not None else "Finished"), ""
    if end.kind is EndKind.NOTHING_LEFT:
        waits = f": {names_words(end.left_out)} {'waits' if len(end.left_out) == 1 else 'wait'} for " if end.left_out else ""
        waits += "" if not waits else "somebody" if others else "you"
        return "Nothing is left that goes on by itself", waits
    if end.remaining is not None:
        said = work_words(end.remaining)
        return f"{said[0].upper()}{said[1:]} once it runs", without
    return "No forecast yet", f": {end.why}" if end.why else ""


def sentence(end: Ending, now: float, zone: tzinfo) -> str:
    """All of it: "Done Thursday 09:10–15:40, most likely 12:05."."""
    return f"{''.join(end_words(end, now, zone))}."


def names_words(names: Sequence[str]) -> str:
    """ "B1", "B1 and B2", "B1, B2, B3 and 4 more"."""
    shown = [*names[:_NAMED], f"{len(names) - _NAMED} more"] if len(names) > _NAMED + 1 else list(names)
    return shown[0] if len(shown) == 1 else f"{', '.join(shown[:-1])} and {shown[-1]}"
