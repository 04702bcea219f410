"""How fast the server works, and how far that can be trusted."""

from __future__ import annotations

import math
from itertools import pairwise

import numpy as np
import pytest

from backend.forecast.curve import SpeedCurve
from backend.forecast.observation import SpeedHistory
from backend.forecast.speed import SpeedDraws, SpeedOutlook, _poisson_quantile, draw_speed, look_at
from tests.forecast.made_observation import CURVE, steady


def looked_at(history: SpeedHistory, concurrency: int = 64) -> SpeedOutlook:
    outlook = look_at(history, SpeedCurve(CURVE), concurrency)
    assert outlook is not None
    return outlook


def drawn(outlook: SpeedOutlook) -> SpeedDraws:
    return draw_speed(outlook, 1.0, 200, np.random.default_rng(1))


def with_outage(minutes: int) -> SpeedHistory:
    history = steady(seconds=3600)
    speed = history.tokens_per_s.copy()
    speed[100 : 100 + 6 * minutes] = 0
    return SpeedHistory(10.0, speed, history.running)


def test_the_level_is_what_was_made_over_what_the_curve_says() -> None:
    outlook = looked_at(steady(900))
    assert math.exp(outlook.long_run) == pytest.approx(0.9)
    assert math.exp(outlook.now) == pytest.approx(0.9)


def test_without_history_and_without_a_sweep_no_speed_is_known() -> None:
    assert look_at(steady(seconds=0), SpeedCurve(None), 64) is None


def test_without_history_a_sweep_is_believed_with_doubt() -> None:
    outlook = looked_at(steady(seconds=0))
    assert (outlook.measured_s, outlook.long_run) == (0, 0)
    assert outlook.level_sd > 3 * looked_at(steady(seconds=7200)).level_sd


def test_an_outage_is_counted_and_does_not_lower_the_speed() -> None:
    outlook = looked_at(with_outage(5))
    assert (outlook.outages, outlook.outage_s, outlook.down) == (1, 300, False)
    assert outlook.long_run == pytest.approx(0)


def test_less_than_a_minute_without_tokens_is_no_outage() -> None:
    speed = steady().tokens_per_s.copy()
    speed[50:55] = 0
    assert looked_at(SpeedHistory(10.0, speed, steady().running)).outages == 0


def test_outages_seen_are_expected_again() -> None:
    lost = np.full(200, 60.0)
    work = np.full(200, 4 * 3600.0)
    calm, stormy = drawn(looked_at(steady())), drawn(looked_at(with_outage(10)))
    assert stormy.seconds_for(work, lost).mean() > calm.seconds_for(work, lost).mean() + 150


def test_a_server_that_is_down_now_costs_what_is_left_of_the_outage() -> None:
    history = steady()
    speed = history.tokens_per_s.copy()
    speed[-12:] = 0
    outlook = looked_at(SpeedHistory(10.0, speed, history.running))
    assert outlook.down
    assert drawn(outlook).down_s.mean() > 60


def test_ranges_widen_when_the_server_turns_out_unsteady() -> None:
    rng = np.random.default_rng(2)
    wild = SpeedHistory(10.0, 1000 * np.exp(np.repeat(rng.normal(0, 0.2, 60), 24)), np.full(1440, 64.0))
    calm, unsteady = looked_at(steady(seconds=14_400)), looked_at(wild)
    assert unsteady.unsteadiness > 2 * calm.unsteadiness
    none, work = np.zeros(200), np.full(200, 7200.0)
    assert drawn(unsteady).seconds_for(work, none).std() > 1.2 * drawn(calm).seconds_for(work, none).std()


def test_half_of_the_requests_draining_tells_little_of_the_speed_with_all_of_them() -> None:
    running = np.concatenate([np.full(180, 64.0), np.full(180, 2.0)])
    made = np.concatenate([np.full(180, 1000.0), np.full(180, 10.0)])
    assert math.exp(looked_at(SpeedHistory(10.0, made, running)).long_run) > 0.9


def test_a_speed_of_a_moment_ago_counts_less_for_work_of_days() -> None:
    made = np.concatenate([np.full(2160, 1000.0), np.full(60, 700.0)])
    draws = drawn(looked_at(SpeedHistory(10.0, made, np.full(len(made), 64.0))))
    none = np.zeros(200)
    soon = np.median(draws.seconds_for(np.full(200, 60.0), none)) / 60
    later = np.median(draws.seconds_for(np.full(200, 86_400.0), none)) / 86_400
    assert soon > 1.15  # ten minutes at 70 % after six hours: half of it is believed for the next minute
    assert later < soon


def test_more_work_never_takes_less_time() -> None:
    draws = drawn(looked_at(with_outage(3)))
    times = [draws.seconds_for(np.full(200, work), np.full(200, 30.0)) for work in (1.0, 60.0, 3600.0, 86_400.0)]
    for less, more in pairwise(times):
        assert (more >= less).all()


@pytest.mark.parametrize("mean", [3.0, 30.0, 31.0, 400.0, 1e6])
def test_many_outages_are_counted_as_well_as_few(mean: float) -> None:
    chance = (np.arange(400) + 0.5) / 400
    count = _poisson_quantile(np.full(400, mean), chance)
    assert count.mean() == pytest.approx(mean, rel=0.02)
    assert count.std() == pytest.approx(math.sqrt(mean), rel=0.05)


def test_a_server_that_hardly_works_is_expected_to_take_long_and_not_for_ever() -> None:
    seconds = drawn(looked_at(steady(0.001))).seconds_for(np.full(200, 1e9), np.zeros(200))
    assert np.isfinite(seconds).all()
