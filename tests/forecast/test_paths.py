"""The band of finished tokens begins with what is finished and ends where the forecast says."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest

from backend.forecast.forecast import forecast
from backend.forecast.observation import SpeedHistory
from backend.forecast.paths import paths
from backend.records import DatasetState
from tests.forecast.made_observation import dataset, observation


def test_the_band_begins_with_what_is_finished_and_never_falls() -> None:
    seen = observation()
    band = paths(seen)
    assert band is not None
    for line in (band.p10, band.p50, band.p90):
        assert line[0] == pytest.approx(seen.datasets[0].finished_tokens)
        assert all(later >= earlier for earlier, later in pairwise(line))
    assert all(low <= middle <= high for low, middle, high in zip(band.p10, band.p50, band.p90, strict=True))


def test_it_ends_with_the_tokens_and_at_the_time_of_the_forecast() -> None:
    seen = observation([dataset(), dataset("B2", "waiting", prompts=4000)])
    found, band = forecast(seen), paths(seen)
    assert band is not None
    assert found.remaining is not None
    assert found.total_tokens is not None
    assert band.after_s[-1] == pytest.approx(found.remaining.p90 * 1.02, rel=0.01)
    assert band.p50[-1] == pytest.approx(found.total_tokens.p50, rel=0.02)
    halfway = np.interp(found.remaining.p50 / 2, band.after_s, band.p50)
    assert seen.datasets[0].finished_tokens < halfway < 0.75 * band.p50[-1]


def test_what_is_finished_of_ended_datasets_counts() -> None:
    over = dataset("B0", "done", finished_lengths=[1000.0] * 500)
    band, alone = paths(observation([over, dataset()])), paths(observation())
    assert band is not None
    assert alone is not None
    assert band.p50[0] == pytest.approx(alone.p50[0] + 500_000)


def test_there_is_no_band_without_a_speed_or_without_work() -> None:
    still = SpeedHistory(10.0, np.zeros(0), np.zeros(0))
    assert paths(observation(history=still, speed_curve=None)) is None
    assert paths(observation([dataset("B1", DatasetState.DONE.value, finished_lengths=[5.0])])) is None
