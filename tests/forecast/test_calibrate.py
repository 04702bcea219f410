"""Ranges that hold: the table, its fit, and its correction by own results."""

from __future__ import annotations

import numpy as np
import pytest

from backend.forecast.calibrate import BUILT_IN, Calibration, Range, Score, fit, held_share, recalibrate

FLAT = Calibration((0.1, 0.5, 0.9), (-1.28,) * 3, (1.28,) * 3, (0.0,) * 3)


def scores(count: int, *, sd: float, shift: float = 0.0, seed: int = 0) -> list[Score]:
    """Forecasts of 1000 s that believe in an sd of 10 % of the log, where it is `sd`."""
    rng = np.random.default_rng(seed)
    believed = Range(1000 * np.exp(-0.128), 1000.0, 1000 * np.exp(0.128))
    return [Score(float(rng.uniform(20, 9000)), believed, float(1000 * np.exp(rng.normal(shift, sd)))) for _ in range(count)]


def test_a_score_says_whether_the_range_held_and_how_good_it_was() -> None:
    inside, outside = Score(10, Range(90, 100, 120), 100), Score(10, Range(90, 100, 120), 150)
    assert (inside.held, outside.held) == (True, False)
    assert inside.pinball < outside.pinball
    assert held_share([inside, outside]) == 0.5
    assert held_share([]) is None


@pytest.mark.parametrize("sd", [0.1, 0.3])
def test_a_fitted_table_holds_8_times_of_10_on_new_forecasts(sd: float) -> None:
    table = fit(scores(4000, sd=sd, shift=0.2), (0.1, 0.5, 0.8))
    fresh = [Score(s.active_s, table.apply(s.forecast, s.active_s), s.actual_s) for s in scores(2000, sd=sd, shift=0.2, seed=1)]
    assert held_share(fresh) == pytest.approx(0.8, abs=0.03)
    assert np.median([s.actual_s / s.forecast.p50 for s in fresh]) == pytest.approx(1, abs=0.03)


def test_a_table_cannot_be_fitted_to_a_handful() -> None:
    with pytest.raises(ValueError, match="too few"):
        fit(scores(10, sd=0.1), (0.5,))


def test_fewer_than_ten_own_results_change_nothing() -> None:
    assert recalibrate(scores(9, sd=1.0)) is BUILT_IN


def test_ten_own_results_that_missed_widen_the_ranges_on_the_side_that_they_missed() -> None:
    late = recalibrate(scores(12, sd=0.02, shift=0.5), FLAT)
    before, after = (c.apply(Range(900, 1000, 1100), 500) for c in (FLAT, late))
    assert after.p50 > before.p50
    assert after.p90 > before.p90
    assert late.own_results == 12


def test_many_own_results_make_ranges_hold_again() -> None:
    table = recalibrate(scores(200, sd=0.35, shift=0.15), FLAT)
    drawn = Range(1000 * np.exp(-0.128), 1000.0, 1000 * np.exp(0.128))
    fresh = [Score(s.active_s, table.apply(drawn, s.active_s), s.actual_s) for s in scores(2000, sd=0.35, shift=0.15, seed=5)]
    assert (held_share(fresh) or 0) > 0.75
    assert (held_share(scores(2000, sd=0.35, shift=0.15, seed=5)) or 0) < 0.35


def test_the_built_in_table_keeps_quantiles_in_order_at_any_progress() -> None:
    for active_s in (0.0, 1.0, 100.0, 1e4, 1e9):
        found = BUILT_IN.apply(Range(80, 100, 130), active_s)
        assert 0 < found.p10 <= found.p50 <= found.p90
