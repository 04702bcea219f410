"""A faster way is asked for where a deadline, a long wait or a far faster API gives a reason, and the options are named."""

from __future__ import annotations

from datetime import UTC, datetime

from backend.forecast.calibrate import Range
from backend.report.end_words import Span
from backend.report.ending import Ending, EndKind
from backend.report.faster_way import best_words, option_end, question
from backend.report.options import LET_IT_RUN, Option
from backend.report.what_if import Changes

NOW = datetime(2026, 12, 1, 13, 2, tzinfo=UTC).timestamp()
HOUR_S = 3600.0
LEFT = Range(9 * HOUR_S, 10 * HOUR_S, 12 * HOUR_S)
GOING = Ending(EndKind.GOING, NOW, Span(NOW + LEFT.p10, NOW + LEFT.p50, NOW + LEFT.p90), LEFT)
STANDING = Ending(EndKind.STANDING, NOW, remaining=LEFT)


def why(end: Ending, *, deadline_h: float | None = None, ask_after_h: float = 100.0, api_s: float | None = None) -> str | None:
    deadline = None if deadline_h is None else NOW + deadline_h * HOUR_S
    asked = question(end, deadline=deadline, ask_after_s=ask_after_h * HOUR_S, now=NOW, zone=UTC, api_s=api_s)
    return asked.why if asked else None


def test_it_is_asked_when_the_likely_end_is_beyond_the_deadline() -> None:
    assert why(GOING, deadline_h=9) == "The deadline is today 22:02; most likely the run is done today 23:00."
    assert why(GOING, deadline_h=11) is None
    assert why(STANDING, deadline_h=9) == (
        "The deadline is today 22:02; most likely the run is done today 23:00, if it went on now."
    )


def test_it_is_asked_when_much_is_left() -> None:
    assert why(GOING, ask_after_h=4) == "About 10.0 h are left, more than the 4.0 h after which this is asked."
    assert why(GOING, ask_after_h=11) is None


def test_it_is_asked_when_an_api_would_be_three_times_faster() -> None:
    assert why(GOING, api_s=3 * HOUR_S) == "An API would be done in about 3.0 h, this box in 10.0 h."
    assert why(GOING, api_s=4 * HOUR_S) is None


def test_nothing_is_asked_where_no_work_goes_on() -> None:
    assert why(Ending(EndKind.FINISHED, finished_at=NOW), deadline_h=-1) is None
    assert why(Ending(EndKind.NOTHING_LEFT, NOW, remaining=Range(0, 0, 0)), deadline_h=-1) is None
    assert why(Ending(EndKind.UNTOLD), ask_after_h=0) is None


def option(name: str, hours: float, *prices: str, makes_it: bool | None = None) -> Option:
    left = Range(hours * 0.9 * HOUR_S, hours * HOUR_S, hours * 1.2 * HOUR_S)
    changes = Changes() if name == LET_IT_RUN else Changes(concurrency=2)
    return Option(name, changes, left, prices, makes_it)


def test_one_line_names_the_gentlest_option_that_makes_it() -> None:
    options = [
        option("50k samples", 3, "50k fewer samples", makes_it=True),
        option("A cap of 2,048 tokens", 6, "23 % of answers cut off", makes_it=True),
        option("Drop B6", 9, "nothing more of B6", makes_it=False),
        option(LET_IT_RUN, 10, makes_it=False),
    ]
    said = best_words(options, GOING, NOW, UTC, deadline=True)
    assert said == "A cap of 2,048 tokens: done today 18:25–20:15; 23 % of answers cut off."
    assert best_words(options[2:], GOING, NOW, UTC, deadline=True) == "No option in sight makes it."
    assert best_words(options, GOING, NOW, UTC, deadline=False).startswith("50k samples: ")
    assert best_words(options[3:], GOING, NOW, UTC, deadline=False) == ""


def test_an_option_of_a_run_that_stands_is_told_as_work() -> None:
    assert option_end(option("x", 10), STANDING, NOW, UTC) == "9.0 h to 12.0 h of work"
