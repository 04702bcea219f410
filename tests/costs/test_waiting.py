"""What could go elsewhere: requests not begun, of datasets that go on."""

from __future__ import annotations

import numpy as np
import pytest

from backend.costs.waiting import as_if_resumed, left_out, moved, what_waits
from backend.forecast.forecast import forecast
from backend.records import DatasetState
from tests.costs.made_case import case
from tests.forecast.made_observation import dataset, lengths, observation


def test_requests_in_flight_are_not_among_those_that_wait() -> None:
    (found,) = what_waits(observation([dataset("A")]))
    assert np.all(found.requests == 10_000 - 2000 - 64)


def test_a_budget_leaves_what_finished_and_flying_requests_do_not_take() -> None:
    made = lengths(2000)
    budget = int(made.sum()) + 1_000_000
    (found,) = what_waits(case([dataset("A", token_budget=budget, finished_lengths=made)]).observation)
    flying = 64 * 500  # about what they come to
    assert float(np.median(found.tokens)) == pytest.approx(1_000_000 - flying, rel=0.02)
    assert float(np.median(found.requests)) == pytest.approx((1_000_000 - flying) / 500, rel=0.1)


@pytest.mark.parametrize("state", ["draining", "paused", "done", "killed", "held", "failed"])
def test_a_dataset_that_makes_no_request_by_itself_waits_for_none(state: str) -> None:
    assert what_waits(observation([dataset("A", state=state, finished_lengths=lengths(100))])) == ()


def test_a_paused_dataset_is_compared_as_if_it_went_on() -> None:
    paused = observation([dataset("A"), dataset("B", state="paused", finished_lengths=lengths(100))])
    resumed, names = as_if_resumed(paused)
    assert names == ("B",)
    assert [one.name for one in what_waits(resumed)] == ["A", "B"]


def test_the_box_only_finishes_what_is_in_flight_of_a_dataset_that_went() -> None:
    now = case().observation
    rest = moved(now, ["A", "C"])
    assert [d.state for d in rest.datasets] == [DatasetState.DRAINING, DatasetState.WAITING, DatasetState.DRAINING]
    all_gone, stayed = forecast(moved(now, ["A", "B", "C"])).remaining, forecast(now).remaining
    assert all_gone is not None
    assert stayed is not None
    assert 0 < all_gone.p50 < stayed.p50 / 20


def test_datasets_that_nothing_brings_on_are_named() -> None:
    now = observation([dataset("A"), dataset("K", state="killed"), dataset("D", state="done"), dataset("H", state="held")])
    assert left_out(now) == ("K", "H")
