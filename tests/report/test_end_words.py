"""When something ends is told in the viewer's time, as exactly as it is known and no more."""

from __future__ import annotations

from datetime import datetime
from zoneinfo import ZoneInfo

import pytest

from backend.forecast.calibrate import Range
from backend.report.end_words import (
    Span,
    done_words,
    length_words,
    likely_words,
    moment_words,
    span_after,
    span_words,
    work_words,
)

BERLIN = ZoneInfo("Europe/Berlin")
NOW = datetime(2026, 12, 1, 13, 2, tzinfo=BERLIN).timestamp()


def at(day: int, hour: int, minute: int = 0, *, month: int = 12, year: int = 2026) -> float:
    return datetime(year, month, day, hour, minute, tzinfo=BERLIN).timestamp()


@pytest.mark.parametrize(
    ("span", "said"),
    [
        (Span(at(3, 9, 13), at(3, 12, 4), at(3, 15, 38)), "Done Thursday 09:10–15:40, most likely 12:05"),
        (Span(at(1, 13, 5), at(1, 13, 6), at(1, 13, 7) + 20), "Done today 13:05–13:08, most likely 13:06"),
        (Span(at(1, 13, 5), at(1, 13, 5), at(1, 13, 5)), "Done today 13:05"),
        (Span(at(2, 21, 5), at(3, 0, 6), at(3, 6, 7)), "Done tomorrow 21:00 – Thursday 06:10, most likely Thursday 00:10"),
        (Span(at(6, 3, 10), at(7, 3, 40), at(7, 22, 5)), "Done Sunday 03:00 – Monday 23:00, most likely Monday 04:00"),
        (Span(at(8, 21), at(11, 0), at(17, 6)), "Done 8–17 December, most likely 11 December"),
        (
            Span(at(28, 21), at(11, 0, month=1, year=2027), at(17, 6, month=1, year=2027)),
            "Done 28 December – 17 January, most likely 11 January",
        ),
    ],
)
def test_a_range_is_told_as_exactly_as_it_is_known(span: Span, said: str) -> None:
    assert "".join(done_words(span, NOW, BERLIN)) == said


def test_the_ends_are_rounded_outwards_on_the_viewers_own_clock() -> None:
    kathmandu = ZoneInfo("Asia/Kathmandu")  # 5 h 45 min ahead of UTC
    span = Span(at(3, 1, 13), at(3, 10, 4), at(3, 20, 38))
    assert span_words(span, NOW, kathmandu) == "Thursday 05:00 – Friday 02:00"


def test_the_likely_end_alone_is_rounded_as_the_range_is() -> None:
    assert likely_words(Span(at(3, 9, 13), at(3, 12, 4), at(3, 15, 38)), NOW, BERLIN) == "Thursday 12:05"
    assert likely_words(Span(at(8, 21), at(11, 0), at(17, 6)), NOW, BERLIN) == "11 December"


def test_a_moment_is_told_by_its_day() -> None:
    assert moment_words(at(3, 8), NOW, BERLIN) == "Thursday 08:00"
    assert moment_words(at(30, 8), NOW, BERLIN) == "30 December 08:00"


@pytest.mark.parametrize(
    ("remaining", "said"),
    [
        (Range(43_500, 50_000, 68_400), "12–19 h of work"),
        (Range(600, 900, 1500), "10–25 min of work"),
        (Range(5, 40, 90), "5–90 s of work"),
        (Range(160_000, 250_000, 400_000), "1.9–4.6 days of work"),
        (Range(7200, 7200, 7200), "2 h of work"),
    ],
)
def test_work_that_does_not_go_on_is_told_as_a_length(remaining: Range, said: str) -> None:
    assert work_words(remaining) == said


@pytest.mark.parametrize(
    ("seconds", "said"),
    [(30, "30 s"), (250, "4.2 min"), (2700, "45 min"), (66_667, "18.5 h"), (1_142_500, "13.2 days"), (-2700, "-45 min")],
)
def test_lengths_are_told_in_the_unit_in_which_they_are_thought_of(seconds: float, said: str) -> None:
    assert length_words(seconds) == said


def test_seconds_from_a_moment_on_become_moments() -> None:
    assert span_after(100.0, Range(1.0, 2.0, 3.0)) == Span(101.0, 102.0, 103.0)


def test_words_that_are_read_later_name_dates() -> None:
    span = Span(at(1, 13, 5), at(1, 13, 6), at(1, 13, 7))
    assert "".join(done_words(span, None, BERLIN)) == "Done Tuesday 1 December 13:05–13:07, most likely 13:06"
    assert moment_words(at(30, 8), None, BERLIN) == "Wednesday 30 December 08:00"
    long = Span(at(28, 21), at(11, 0, month=1, year=2027), at(17, 6, month=1, year=2027))
    assert done_words(long, None, BERLIN)[0] == "Done 28 December 2026 – 17 January 2027"
