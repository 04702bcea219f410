"""The whole forecast: every pitfall that a simple one falls into, and the jobs of a simulator."""

from __future__ import annotations

import time
from dataclasses import replace

import pytest

from backend.forecast.calibrate import Range
from backend.forecast.forecast import Forecast, forecast, naive
from backend.forecast.observation import BudgetStop, Observation, SpeedHistory
from tests.forecast.made_observation import dataset, lengths, million, observation, steady
from tests.forecast.small_lab import made_job


def remaining(seen: Observation) -> Range:
    found = forecast(seen).remaining
    assert found is not None
    return found


def ends(found: Forecast) -> list[Range | None]:
    return [each.ends_in for each in found.datasets]


def test_a_steady_run_takes_what_is_left_over_the_speed() -> None:
    left = 8000 * 500 / 1000  # samples × tokens / (tokens/s)
    assert remaining(observation()).p50 == pytest.approx(left, rel=0.1)


def test_the_same_observation_gives_the_same_forecast() -> None:
    assert forecast(observation()) == forecast(observation())


def test_quantiles_are_in_order() -> None:
    found = remaining(observation())
    assert 0 < found.p10 < found.p50 < found.p90


def test_when_everything_is_done_nothing_is_left() -> None:
    done = dataset(state="done", finished_lengths=lengths(10_000))
    found = forecast(observation([done]))
    assert found.remaining == Range(0, 0, 0)
    assert ends(found) == [Range(0, 0, 0)]
    assert forecast(observation([])).remaining == Range(0, 0, 0)
    assert forecast(observation([done], steady(seconds=0), speed_curve=None)).remaining == Range(0, 0, 0)


def test_without_a_speed_nothing_is_said_and_the_reason_is() -> None:
    found = forecast(observation(history=steady(seconds=0), speed_curve=None))
    assert found.remaining is None
    assert "no speed" in (found.why_none or "")


def test_before_the_first_sample_is_finished_lengths_are_not_guessed() -> None:
    young = dataset(finished_lengths=[], in_flight_tokens=[5.0] * 64)
    found = forecast(observation([young], steady(seconds=10), active_s=10.0))
    assert found.remaining is None
    assert "no sample is finished" in (found.why_none or "")


def test_a_token_budget_is_forecast_before_the_first_sample_is_finished() -> None:
    young = dataset(finished_lengths=[], in_flight_tokens=[5.0] * 64, token_budget=10_000_000, prompts=10_000_000)
    found = forecast(observation([young], steady(seconds=30), active_s=30.0))
    assert found.remaining is not None
    assert found.remaining.p10 < 10_500 < found.remaining.p90
    assert found.datasets[0].budget_binds == pytest.approx(1, abs=0.02)


def test_a_resumed_run_takes_old_lengths_and_the_speed_of_this_session() -> None:
    """An hour's history of a session that began with three quarters of the samples finished."""
    resumed = dataset(prompts=40_000, finished_lengths=lengths(30_000))
    found = remaining(observation([resumed], active_s=30_000.0))
    assert found.p50 == pytest.approx(10_000 * 500 / 1000, rel=0.15)


def test_a_change_of_concurrency_changes_the_speed_as_the_curve_says() -> None:
    half = replace(observation(history=steady(1000, running=64)), concurrency=8)
    assert remaining(half).p50 == pytest.approx(remaining(observation()).p50 * 1000 / 370, rel=0.1)
    assert remaining(half).p90 / remaining(half).p50 > remaining(observation()).p90 / remaining(observation()).p50


def test_paused_time_does_not_count() -> None:
    """The history has active seconds only; how long the pauses were is nowhere."""
    paused = dataset("B2", "paused")
    found = forecast(observation([dataset(), paused]))
    assert ends(found)[1] is None
    assert found.assumptions is not None
    assert found.assumptions.left_out == ("B2",)
    assert found.remaining is not None
    assert found.remaining.p50 == pytest.approx(remaining(observation()).p50, rel=0.05)


def test_lost_work_keeps_its_place_and_is_made_again() -> None:
    """After a restart 64 requests are in flight anew: as many samples are left, and what they had made is to be made again."""
    before = dataset(in_flight_tokens=[400.0] * 64, prompts=2200)
    after = dataset(in_flight_tokens=[0.0] * 64, prompts=2200)
    assert remaining(observation([after])).p50 > remaining(observation([before])).p50 + 5


def test_outages_of_this_session_are_expected_again() -> None:
    speed = steady().tokens_per_s.copy()
    speed[60:100] = speed[200:240] = 0
    shaken = observation(history=SpeedHistory(10.0, speed, steady().running))
    assert remaining(shaken).p50 > remaining(observation()).p50
    assert remaining(shaken).p90 > remaining(observation()).p90 + 60
    before, after = forecast(observation()).assumptions, forecast(shaken).assumptions
    assert before is not None
    assert after is not None
    assert after.outages_seen == 2
    assert after.outages_to_come > 3 * before.outages_to_come


def test_prompts_that_run_out_end_a_dataset_before_its_budget() -> None:
    seen = forecast(observation([dataset(prompts=3000, token_budget=50_000_000)]))
    assert seen.datasets[0].budget_binds == 0
    assert seen.datasets[0].total_samples is not None
    assert seen.datasets[0].total_samples.p50 == 3000


def test_a_budget_ends_a_dataset_before_its_prompts_run_out() -> None:
    seen = forecast(observation([dataset(prompts=1_000_000, token_budget=2_000_000)]))
    assert seen.datasets[0].budget_binds == 1
    assert seen.remaining is not None
    assert seen.remaining.p50 == pytest.approx((2_000_000 - lengths(2000).sum()) / 1000, rel=0.1)


def test_a_draining_budget_is_overshot_a_cancelled_one_is_cut_and_a_reserved_one_is_met() -> None:
    budget = 2_000_000
    totals, times = {}, {}
    for stop in BudgetStop:
        found = forecast(observation([dataset(prompts=1_000_000, token_budget=budget)], budget_stop=stop))
        assert found.datasets[0].total_tokens is not None
        assert found.remaining is not None
        totals[stop], times[stop] = found.datasets[0].total_tokens.p50, found.remaining.p50
    assert totals[BudgetStop.DRAIN] > budget * 1.01
    assert totals[BudgetStop.CANCEL] == budget
    assert totals[BudgetStop.RESERVE] == pytest.approx(budget, rel=0.01)
    assert times[BudgetStop.DRAIN] > times[BudgetStop.CANCEL]
    assert times[BudgetStop.DRAIN] > times[BudgetStop.RESERVE]


def test_the_last_requests_take_their_time() -> None:
    """All are started: the longest of them decides, and it cannot be faster than one request is."""
    last = dataset(finished_lengths=lengths(2000, mean=2000), in_flight_tokens=[100.0] * 64, prompts=2064)
    found = remaining(observation([last]))
    assert found.p50 > 1.3 * 64 * 1900 / 1000


def test_a_budget_below_one_answer_gets_one() -> None:
    tiny = dataset(state="waiting", token_budget=1, finished_lengths=lengths(0), in_flight_tokens=[])
    done = dataset("B0", "done")
    for stop in (BudgetStop.DRAIN, BudgetStop.RESERVE):
        found = forecast(observation([dataset("B2", "done", finished_lengths=lengths(500)), tiny, done], budget_stop=stop))
        assert found.remaining is not None
        assert 0 < found.remaining.p50 < 600
        total = found.datasets[1].total_tokens
        assert total is not None
        assert total.p50 > 100


def test_a_dataset_without_prompts_ends_at_once() -> None:
    found = forecast(observation([dataset(), dataset("B2", "waiting", prompts=0)]))
    assert ends(found)[1] == Range(0, 0, 0)


def test_datasets_that_run_one_after_the_other_end_in_that_order() -> None:
    found = forecast(observation([dataset(), dataset("B2", "waiting", prompts=5000), dataset("B3", "waiting", prompts=500)]))
    middles = [each.p50 for each in ends(found) if each is not None]
    assert middles == sorted(middles)
    assert found.remaining is not None
    assert found.remaining.p50 == pytest.approx(middles[-1])
    assert found.assumptions is not None
    assert found.assumptions.not_begun == ("B2", "B3")


def test_slots_that_a_dataset_leaves_free_are_worth_time() -> None:
    two = [dataset(prompts=2500), dataset("B2", "waiting", prompts=500)]
    assert remaining(observation(two, overlap=True)).p50 < remaining(observation(two, overlap=False)).p50


def test_a_draining_dataset_finishes_what_is_in_flight_only() -> None:
    draining = dataset(state="draining", finished_lengths=lengths(2000), in_flight_tokens=[300.0] * 64)
    assert 10 < remaining(observation([draining])).p50 < 200


def test_naive_extrapolation_is_tokens_left_over_the_speed_of_five_minutes() -> None:
    mean = lengths(2000).mean()
    assert naive(observation()) == pytest.approx(8000 * mean / 1000)
    assert naive(observation(history=steady(seconds=0))) is None


def test_assumptions_tell_their_source() -> None:
    found = forecast(observation()).assumptions
    assert found is not None
    assert (found.speed_source, found.concurrency, found.own_results) == ("measured", 64, 0)
    assert found.naive_tokens_per_s == pytest.approx(1000)
    assert found.later_if_lengths_10_percent_longer_s == pytest.approx(0.1 * remaining(observation()).p50)
    swept = forecast(observation(history=steady(seconds=0))).assumptions
    assert swept is not None
    assert swept.speed_source == "sweep"


def test_a_million_finished_samples_are_forecast_in_50_ms() -> None:
    """The median of this thread's time on the processor, so that a busy machine does not decide."""
    seen = million()
    forecast(seen)
    took = []
    for _ in range(9):
        began = time.thread_time()
        forecast(seen)
        took.append(time.thread_time() - began)
    assert sorted(took)[4] < 0.05


@pytest.mark.parametrize("stop", [BudgetStop.DRAIN, BudgetStop.CANCEL])
def test_ranges_hold_on_jobs_of_a_simulator_of_our_own(stop: BudgetStop) -> None:
    held = middle = count = 0
    for seed in range(8):
        for moment in made_job(seed, stop).play(shares=(0.1, 0.5)):
            found = forecast(moment.observation).remaining
            if found is not None:
                count += 1
                held += found.p10 <= moment.remaining_s <= found.p90
                middle += abs(found.p50 / moment.remaining_s - 1) < 0.25
    assert count >= 14
    assert held / count > 0.6
    assert middle / count > 0.6
