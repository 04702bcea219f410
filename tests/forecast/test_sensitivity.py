"""The two stories as numbers."""

from __future__ import annotations

import pytest

from backend.forecast.sensitivity import sensitivity


@pytest.mark.parametrize(("tokens_per_s", "hours"), [(900, 18.5), (1000, 16.7), (1200, 13.9)])
def test_60_million_tokens_take_as_long_as_the_story_says(tokens_per_s: float, hours: float) -> None:
    assert round(sensitivity(1, tokens_per_s, 60e6) / 3600, 1) == hours


@pytest.mark.parametrize(("mean_tokens", "days"), [(1500, 9.9), (2000, 13.2), (2500, 16.5)])
def test_914_thousand_samples_take_as_long_as_the_story_says(mean_tokens: float, days: float) -> None:
    assert round(sensitivity(mean_tokens, 1600, 914e3) / 86_400, 1) == days


def test_a_speed_of_nothing_is_refused() -> None:
    with pytest.raises(ValueError, match="above 0"):
        sensitivity(100, 0, 100)
