"""Ticks stand at round numbers, and at round moments of the reader's own clock, also where it is changed."""

from __future__ import annotations

from datetime import UTC, datetime
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backend.report.share.ticks import time_ticks, value_ticks

BERLIN = ZoneInfo("Europe/Berlin")


@pytest.mark.parametrize(
    ("highest", "ticks"),
    [
        (21.6e6, (0, 5e6, 10e6, 15e6, 20e6, 25e6)),
        (100, (0, 20, 40, 60, 80, 100)),
        (1.1, (0, 0.25, 0.5, 0.75, 1.0, 1.25)),
        (0, (0, 1)),
    ],
)
def test_values_have_round_ticks(highest: float, ticks: tuple[float, ...]) -> None:
    assert value_ticks(highest) == pytest.approx(ticks)


@given(st.floats(1e-3, 1e15))
def test_ticks_reach_as_high_as_the_values_and_are_few(highest: float) -> None:
    ticks = value_ticks(highest)
    assert ticks[-1] >= highest * (1 - 1e-9)
    assert 2 <= len(ticks) <= 6


def test_hours_are_told_by_the_clock_and_a_new_day_by_its_date() -> None:
    since = datetime(2026, 11, 30, 18, 40, tzinfo=BERLIN).timestamp()
    words = [words for _, words in time_ticks(since, since + 7 * 3600, BERLIN, 8)]
    assert words == ["19:00", "20:00", "21:00", "22:00", "23:00", "Tue 1 Dec", "01:00"]


def test_ticks_stay_round_where_the_clock_is_put_back() -> None:
    since = datetime(2026, 10, 24, 20, tzinfo=BERLIN).timestamp()
    words = [words for _, words in time_ticks(since, since + 14 * 3600, BERLIN, 6)]
    assert words == ["21:00", "Sun 25 Oct", "03:00", "06:00", "09:00"]


def test_weeks_are_told_by_dates() -> None:
    since = datetime(2026, 11, 30, 18, 40, tzinfo=UTC).timestamp()
    words = [words for _, words in time_ticks(since, since + 20 * 86_400, UTC, 5)]
    assert words == ["1 Dec", "8 Dec", "15 Dec"]


@given(st.floats(1.7e9, 2e9), st.floats(1, 4e7), st.integers(2, 12))
def test_ticks_lie_within_and_are_never_too_many(since: float, span_s: float, most: int) -> None:
    ticks = time_ticks(since, since + span_s, BERLIN, most)
    assert len(ticks) <= most
    assert all(since <= at <= since + span_s for at, _ in ticks)
