"""PURE: whether to ask "Is there a faster way?", and why; and the options that would make it, in words."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import tzinfo
from typing import Final

from backend.report.end_words import length_words, likely_words, moment_words, span_after, span_words
from backend.report.ending import Ending
from backend.report.options import Option

API_GAIN: Final = 3.0  # an API that is so many times faster is a reason to ask
ASKED: Final = "Is there a faster way?"


@dataclass(frozen=True, slots=True)
class Question:
    """Why it is asked. `deadline` in epoch seconds, where that is the reason."""

    why: str
    deadline: float | None = None


def question(
    end: Ending, *, deadline: float | None, ask_after_s: float, now: float, zone: tzinfo, api_s: float | None = None
) -> Question | None:
    """None where nothing has to be asked. `api_s`: how long the fastest configured API would take for what is left."""
    if end.remaining is None or end.remaining.p90 <= 0:
        return None
    span = end.span if end.span is not None else span_after(now, end.remaining)
    left_s = max(span.p50 - now, 0.0)
    going = "" if end.span is not None else ", if it went on now"
    if deadline is not None and span.p50 > deadline:
        late = f"most likely the run is done {likely_words(span, now, zone)}{going}"
        return Question(f"The deadline is {moment_words(deadline, now, zone)}; {late}.", deadline)
    if api_s is not None and api_s * API_GAIN <= left_s:
        return Question(f"An API would be done in about {length_words(api_s)}, this box in {length_words(left_s)}.")
    if left_s > ask_after_s:
        more = f"more than the {length_words(ask_after_s)} after which this is asked"
        return Question(f"About {length_words(left_s)} are left, {more}.")
    return None


def best_words(options: Sequence[Option], end: Ending, now: float, zone: tzinfo, *, deadline: bool) -> str:
    """The option that a line has room for: the latest of those that make the deadline; without one, the soonest.

    Empty where there is no option.
    """
    others = [option for option in options if not option.is_present]
    chosen = [option for option in others if option.makes_it] if deadline else others
    if not chosen:
        return "No option in sight makes it." if deadline else ""
    option = chosen[-1] if deadline else chosen[0]
    return f"{option.name}: {option_end(option, end, now, zone)}; {'; '.join(option.prices)}."


def option_end(option: Option, end: Ending, now: float, zone: tzinfo) -> str:
    """When the run would be done: a range of moments, or of work where it does not go on now."""
    if end.said_at is not None and end.span is not None:
        words = span_words(span_after(end.said_at, option.remaining), now, zone)
        return f"done {words[0].lower() if words.startswith(('Today', 'Tomorrow')) else words[0]}{words[1:]}"
    return f"{length_words(option.remaining.p10)} to {length_words(option.remaining.p90)} of work"
