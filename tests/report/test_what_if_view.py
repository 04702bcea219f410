"""What-ifs of a run: fewer samples are never later, prices are told in data, and the wishes are those that make it so."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from backend.forecast.calibrate import BUILT_IN
from backend.forecast.forecast import forecast
from backend.forecasts import Basis
from backend.report.options import LET_IT_RUN, ranked
from backend.report.sensitivity import sensitivity_of, table_of
from backend.report.what_if import Changes, changed, imagine, not_live, wishes
from tests.forecast.made_observation import CURVE, dataset, lengths, observation, steady
from tests.made_forecast import two_datasets

HOUR_S, DAY_S = 3600, 86_400
BASIS = Basis(0.0, two_datasets(), BUILT_IN)
SLACK_S = 3.0  # how the last requests run out is reckoned in steps and averages


def story() -> Basis:
    """914,000 samples, 2,000 tokens on average, at 1,600 tokens/s, after a day."""
    made = lengths(70_000, mean=2000, log_sd=1.2)
    seen = dataset("sharegpt", prompts=914_000, finished_lengths=made, max_new_tokens=16_384)
    curve = tuple((n, speed * 1.6) for n, speed in CURVE)
    return Basis(0.0, observation([seen], steady(1600, DAY_S), active_s=DAY_S, speed_curve=curve), BUILT_IN)


def middle(changes: Changes, basis: Basis = BASIS) -> float:
    found = forecast(changed(basis.observation, changes, 1), basis.calibration).remaining
    assert found is not None
    return found.p50


@settings(max_examples=20, deadline=None)
@given(counts=st.lists(st.integers(1, 20_000), min_size=2, max_size=2).map(sorted), name=st.sampled_from(["alpha", "beta"]))
def test_fewer_samples_are_never_later(counts: list[int], name: str) -> None:
    fewer, more = (middle(Changes(samples=((name, count),))) for count in counts)
    assert fewer <= more * 1.001 + SLACK_S


@settings(max_examples=15, deadline=None)
@given(caps=st.lists(st.integers(16, 16_384), min_size=2, max_size=2).map(sorted))
def test_a_lower_cap_is_never_later(caps: list[int]) -> None:
    lower, higher = (middle(Changes(caps=(("alpha", cap),))) for cap in caps)
    assert lower <= higher * 1.02 + SLACK_S


@settings(max_examples=10, deadline=None)
@given(dropped=st.sets(st.sampled_from(["alpha", "beta"]), max_size=1), more=st.integers(1, 4))
def test_dropping_datasets_and_adding_replicas_are_never_later(dropped: set[str], more: int) -> None:
    asked = Changes(dropped=tuple(dropped), replicas=more, efficiency=0.8)
    assert middle(asked) <= middle(Changes()) * 1.001 + SLACK_S


def test_prices_are_told_in_data() -> None:
    fewer = imagine(BASIS, Changes(samples=(("alpha", 5000),)), 1)
    assert fewer.prices == ("5.00k fewer samples",)
    budget = imagine(BASIS, Changes(budgets=(("beta", 2_000_000),)), 1)
    assert any(words.startswith("3.0") and words.endswith("M fewer tokens") for words in budget.prices), budget.prices
    capped = imagine(BASIS, Changes(caps=(("alpha", 2048),)), 1)
    assert "of alpha's answers cut off (mean " in capped.prices[0]
    assert capped.effects[0].mean_tokens < capped.effects[0].mean_tokens_now
    dropped = imagine(BASIS, Changes(dropped=("beta",)), 1)
    assert dropped.prices[-1] == "nothing more of beta"
    assert imagine(BASIS, Changes(concurrency=32), 1).prices == ()


def test_a_limit_that_is_reached_already_is_told_as_an_end() -> None:
    going = Basis(0.0, observation([dataset("B1"), dataset("B2", "waiting")]), BUILT_IN)  # 2,000 finished, 64 in flight
    asked = Changes(samples=(("B1", 60),))
    ended = imagine(going, asked, 1).prices
    assert ended[0] == "B1 ends now: the 2,000 samples that are finished and 64 in flight stay, no further prompt of it is sent"
    assert ended[1].endswith("k fewer samples")
    nearly_all = Basis(0.0, observation([dataset("B1", prompts=2064)]), BUILT_IN)
    assert [words.partition(":")[0] for words in imagine(nearly_all, asked, 1).prices] == ["B1 ends now"]
    spent = imagine(going, Changes(budgets=(("B1", 1000),)), 1).prices
    assert spent[0].startswith("B1 ends now: the ")
    assert "tokens that are finished" in spent[0]
    assert not any("ends now" in words for words in imagine(going, Changes(samples=(("B1", 2065),)), 1).prices)


def test_wishes_take_work_away_before_they_make_anything_faster() -> None:
    asked = Changes(
        samples=(("alpha", 5000),), caps=(("alpha", 2048),), budgets=(("beta", 10),), concurrency=32,
        dropped=("gamma",), order=("beta", "alpha"), replicas=4,
    )  # fmt: skip
    assert [(wish.key, wish.value, wish.dataset) for wish in wishes(asked)] == [
        (None, "killed", "gamma"),
        ("datasets.alpha.max_new_tokens", "2048", None),
        ("datasets.beta.token_budget", "10", None),
        ("datasets.alpha.max_samples", "5000", None),
        ("order", "beta,alpha", None),
        ("concurrency", "32", None),
    ]


def test_replicas_cannot_change_live_and_that_is_said() -> None:
    said = not_live(Changes(replicas=4), 2)
    assert said is not None
    assert "engine.replicas = 4" in said
    assert not_live(Changes(replicas=2), 2) is None
    assert wishes(Changes(replicas=4)) == ()


def test_the_options_of_the_story_are_ranked_with_their_prices() -> None:
    found = ranked(story(), replicas=1)
    named = {option.name: option for option in found}
    assert list(named)[-1] == LET_IT_RUN
    assert [option.remaining.p50 for option in found] == sorted(option.remaining.p50 for option in found)
    samples = named["500k samples of sharegpt"]
    assert samples.prices == ("414k fewer samples",)
    assert samples.changes.samples == (("sharegpt", 500_000),)
    cap = named["A cap of 2,048 tokens"]
    assert "of sharegpt's answers cut off" in cap.prices[0]
    assert 11 * DAY_S < named[LET_IT_RUN].remaining.p50 < 15 * DAY_S
    assert samples.remaining.p50 < 0.55 * named[LET_IT_RUN].remaining.p50


def test_a_sweep_proposes_the_concurrency_at_which_the_run_ends_soonest() -> None:
    slow = Basis(0.0, observation([dataset("alpha")], steady(370, running=8), concurrency=8), BUILT_IN)
    named = {option.name: option for option in ranked(slow, replicas=1)}
    proposed = [option for name, option in named.items() if name.endswith("by the sweep")]
    assert len(proposed) == 1
    assert proposed[0].changes.concurrency in (64, 128)
    assert proposed[0].prices == ("the same data",)


def test_where_no_option_makes_the_deadline_as_many_samples_as_do_are_proposed() -> None:
    now = imagine(BASIS, Changes(), 1).remaining
    assert now is not None
    asked = 0.35 * now.p50
    found = ranked(BASIS, replicas=1, deadline_in_s=asked)
    made = [option for option in found if option.makes_it]
    assert made
    assert all(option.remaining.p90 <= asked for option in made)
    assert [option.makes_it for option in found if option.name == LET_IT_RUN] == [False]


def test_a_deadline_that_nothing_makes_proposes_nothing_of_the_kind() -> None:
    assert not any(option.makes_it for option in ranked(BASIS, replicas=1, deadline_in_s=1.0))


@pytest.mark.parametrize(("column", "hours"), [(0, 18.5), (1, 16.7), (2, 13.9)])
def test_the_table_of_a_budget_reckons_as_the_story_does(column: int, hours: float) -> None:
    table = table_of(None, 1000, samples=0, budget_tokens=60e6)
    assert [round(speed) for speed in table.speeds_tokens_per_s] == [900, 1000, 1200]
    assert round(table.seconds[0][column] / HOUR_S, 1) == hours
    assert (table.measured_row, table.measured_column) == (0, 1)


@pytest.mark.parametrize(("row", "days"), [(0, 9.9), (1, 13.2), (2, 16.5)])
def test_the_table_of_samples_reckons_as_the_story_does(row: int, days: float) -> None:
    table = table_of(2000, 1600, samples=914e3)
    assert table.means_tokens == (1500, 2000, 2500)
    assert round(table.seconds[row][table.measured_column] / DAY_S, 1) == days


def test_the_table_of_a_run_is_about_what_was_measured() -> None:
    basis = story()
    found = imagine(basis, Changes(), 1).remaining
    table = sensitivity_of(basis.observation, forecast(basis.observation, basis.calibration))
    assert table is not None
    assert found is not None
    assert table.samples == 844_000
    assert table.means_tokens[1] == pytest.approx(2000, rel=0.1)
    assert table.seconds[table.measured_row][table.measured_column] == pytest.approx(found.p50, rel=0.1)
