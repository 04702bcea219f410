"""The history that a forecast sees: even bins of active time, no bin below nothing, a day of it at most."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from backend.job.speed_history import COARSE_S, FINE_S, KEPT_BINS, SpeedBins


def test_a_bin_counts_when_it_is_full() -> None:
    bins = SpeedBins()
    for _ in range(25):
        bins.add(1.0, 900.0, 64)
    history = bins.history()
    assert history.bin_s == FINE_S
    assert history.tokens_per_s.tolist() == [900.0, 900.0]
    assert history.running.tolist() == [64.0, 64.0]


def test_a_long_look_is_spread_over_the_bins_it_covers() -> None:
    bins = SpeedBins()
    bins.add(30.0, 3000.0, 10)
    assert bins.history().tokens_per_s.tolist() == [100.0, 100.0, 100.0]


def test_what_was_lost_is_taken_from_before() -> None:
    bins = SpeedBins()
    for tokens in (1000.0, 1000.0, -1500.0, 1000.0):
        bins.add(10.0, tokens, 10)
    assert bins.history().tokens_per_s.tolist() == [50.0, 0.0, 0.0, 100.0]


def test_more_lost_than_was_ever_made_is_nothing_made() -> None:
    bins = SpeedBins()
    bins.add(10.0, 100.0, 10)
    bins.add(10.0, -500.0, 10)
    assert bins.history().tokens_per_s.tolist() == [0.0, 0.0]


def test_after_an_hour_bins_are_minutes_and_after_a_day_old_ones_go() -> None:
    bins = SpeedBins()
    for _ in range(3600):
        bins.add(1.0, 60.0, 4)
    history = bins.history()
    assert history.bin_s == COARSE_S
    assert len(history.tokens_per_s) == 60
    for _ in range(1500):
        bins.add(60.0, 600.0, 4)
    history = bins.history()
    assert len(history.tokens_per_s) == KEPT_BINS
    assert history.tokens_per_s[-1] == 10.0


def test_a_machine_that_slept_made_nothing_that_is_known() -> None:
    bins = SpeedBins()
    bins.add(7200.0, 1e9, 64)
    bins.add(-5.0, 10.0, 64)
    assert len(bins.history().tokens_per_s) == 0


@given(st.lists(st.tuples(st.floats(0.01, 3), st.floats(0, 1e4), st.integers(0, 300)), max_size=80))
@settings(deadline=None, derandomize=True, database=None)
def test_no_token_and_no_second_is_lost_between_bins(looks: list[tuple[float, float, int]]) -> None:
    bins = SpeedBins()
    for seconds, tokens, running in looks:
        bins.add(seconds, tokens, running)
    history = bins.history()
    full_s = len(history.tokens_per_s) * history.bin_s
    total_s = sum(seconds for seconds, _, _ in looks)
    assert total_s - history.bin_s - 1e-6 <= full_s <= total_s + 1e-6
    assert float(history.tokens_per_s.sum() * history.bin_s) <= sum(tokens for _, tokens, _ in looks) * (1 + 1e-6) + 1
    assert np.all(history.running <= max((running for _, _, running in looks), default=0) + 0.01)
    if looks and full_s:
        made = sum(tokens for _, tokens, _ in looks) - bins._open_tokens
        assert float(history.tokens_per_s.sum() * history.bin_s) == pytest.approx(made, rel=1e-3, abs=1)
