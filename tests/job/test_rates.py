"""Rates over a window of cumulative counts."""

from __future__ import annotations

from backend.job.rates import Window


def test_nothing_is_known_before_a_second_point() -> None:
    window = Window(60.0)
    assert window.rates() is None
    window.add(0.0, 5)
    assert window.rates() is None
    assert window.differences() is None


def test_a_rate_is_growth_over_the_time_between() -> None:
    window = Window(60.0)
    window.add(0.0, 0, 100)
    window.add(4.0, 8, 100)
    assert window.differences() == (4.0, (8, 0))
    assert window.rates() == (2.0, 0.0)


def test_what_is_older_than_the_window_no_longer_counts() -> None:
    window = Window(10.0)
    for second in range(100):
        window.add(float(second), 7 * min(second, 50))
    assert window.rates() == (0.0,)


def test_the_window_is_as_long_as_asked_even_with_rare_points() -> None:
    window = Window(10.0)
    window.add(0.0, 0)
    window.add(100.0, 50)
    assert window.rates() == (0.5,)


def test_a_clock_that_went_back_makes_no_rate() -> None:
    window = Window(10.0)
    window.add(100.0, 0)
    window.add(50.0, 5)
    assert window.rates() is None
