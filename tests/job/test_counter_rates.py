"""Rates of counters are never negative and never invented."""

from __future__ import annotations

from backend.job.counter_rates import CounterRates, EngineRates, Growth, PacedRates
from backend.job.engine_loads import EngineLoad
from backend.job.engine_metrics import EngineMetrics


def test_growth_is_the_difference_over_the_time() -> None:
    rates = CounterRates()
    assert rates.growth("tokens", 100.0, 10.0, "a") is None
    assert rates.growth("tokens", 400.0, 15.0, "a") == Growth(300.0, 5.0)
    assert Growth(300.0, 5.0).per_s == 60.0
    assert rates.growth("tokens", 400.0, 20.0, "a") == Growth(0.0, 5.0)


def test_another_life_begins_anew_even_where_its_counter_is_higher() -> None:
    rates = CounterRates()
    rates.growth("tokens", 100.0, 0.0, "a")
    assert rates.growth("tokens", 900.0, 5.0, "b") is None
    assert rates.growth("tokens", 910.0, 10.0, "b") == Growth(10.0, 5.0)


def test_a_value_that_went_down_is_a_restart_and_no_negative_rate() -> None:
    rates = CounterRates()
    rates.growth("tokens", 800.0, 0.0, "a")
    assert rates.growth("tokens", 0.0, 5.0, "a") is None
    assert rates.growth("tokens", 50.0, 10.0, "a") == Growth(50.0, 5.0)


def test_a_missed_look_is_bridged_and_a_long_gap_is_not() -> None:
    rates = CounterRates(longest_gap_s=60.0)
    rates.growth("tokens", 0.0, 0.0, "a")
    assert rates.growth("tokens", None, 5.0, "a") is None
    assert rates.growth("tokens", 100.0, 10.0, "a") == Growth(100.0, 10.0)
    assert rates.growth("tokens", 10_000.0, 71.0, "a") is None
    assert rates.growth("tokens", 10_010.0, 76.0, "a") == Growth(10.0, 5.0)


def test_a_clock_that_stands_or_goes_back_gives_no_rate() -> None:
    rates = CounterRates()
    rates.growth("tokens", 0.0, 100.0, "a")
    assert rates.growth("tokens", 5.0, 100.0, "a") is None
    assert rates.growth("tokens", 9.0, 90.0, "a") is None
    assert rates.growth("tokens", 10.0, 91.0, "a") == Growth(1.0, 1.0)


def page(step: int) -> EngineMetrics:
    return EngineMetrics(
        decode_tokens_total=1000.0 * step,
        prefill_compute_tokens_total=300.0 * step,
        prefill_cache_tokens_total=100.0 * step,
        retracted_total=2.0 * step,
        first_token_sum_s=3.0 * step,
        first_token_count=6.0 * step,
        queue_time_sum_s=1.0,
        queue_time_count=4.0,
        cache_hit_rate=0.9,
    )


def test_an_engines_rates_are_of_the_interval() -> None:
    rates = EngineRates()
    first = rates.pace(EngineLoad(), page(1), 0.0, "a")
    assert first == PacedRates(at=0.0, metrics=page(1))
    assert rates.pace(EngineLoad(), page(2), 5.0, "a") == PacedRates(
        at=5.0,
        metrics=page(2),
        prefill_tokens_per_s=60.0,
        decode_tokens_per_s=200.0,
        retracted_per_s=0.4,
        cache_hit_rate=0.25,
        first_token_s=0.5,
        queue_time_s=None,
    )


def test_without_metrics_the_load_tells_the_token_rates() -> None:
    rates = EngineRates()
    rates.pace(EngineLoad(generated_tokens=100.0, prefilled_tokens=10.0), EngineMetrics(), 0.0, "a")
    paced = rates.pace(EngineLoad(generated_tokens=600.0, prefilled_tokens=60.0), EngineMetrics(), 5.0, "a")
    assert (paced.decode_tokens_per_s, paced.prefill_tokens_per_s) == (100.0, 10.0)


def test_two_sources_are_never_compared_with_each_other() -> None:
    rates = EngineRates()
    rates.pace(EngineLoad(generated_tokens=100.0), EngineMetrics(), 0.0, "a")
    switched = rates.pace(EngineLoad(generated_tokens=200.0), EngineMetrics(decode_tokens_total=5000.0), 5.0, "a")
    assert switched.decode_tokens_per_s is None


def test_an_old_servers_hit_rate_is_its_gauge() -> None:
    assert EngineRates().pace(EngineLoad(), EngineMetrics(cache_hit_rate=0.4), 0.0, "a").cache_hit_rate == 0.4
