"""What an API allows a minute and at once, and which of it binds."""

from __future__ import annotations

import numpy as np
import pytest

from backend.costs.limits import ApiLimits, Binding, pace

SPEED, MEAN = np.full(3, 50.0), np.full(3, 500.0)


def test_streams_alone_make_their_number_times_their_speed() -> None:
    found = pace(ApiLimits(606), SPEED, 0.0, MEAN, 100.0)
    assert found.tokens_per_s == pytest.approx(30_300)
    assert found.binds is Binding.STREAMS


def test_the_wait_for_the_first_token_takes_its_share_of_each_stream() -> None:
    assert pace(ApiLimits(100), SPEED, 10.0, MEAN, 0.0).tokens_per_s == pytest.approx(2500)  # 10 s of waiting, 10 s of work


def test_requests_a_minute_bind_where_answers_are_short() -> None:
    found = pace(ApiLimits(1000, requests_per_minute=60), SPEED, 0.0, MEAN, 100.0)
    assert found.tokens_per_s == pytest.approx(500)
    assert found.streams == pytest.approx(10)  # one a second, each of ten seconds
    assert found.binds is Binding.REQUESTS


def test_tokens_a_minute_count_the_prompts_as_well() -> None:
    found = pace(ApiLimits(1000, tokens_per_minute=60_000), SPEED, 0.0, MEAN, 500.0)
    assert found.tokens_per_s == pytest.approx(500)
    assert found.binds is Binding.TOKENS
