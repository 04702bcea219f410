"""Admission keeps exact counts, lands close to token budgets, and keeps the slots full."""

from __future__ import annotations

import math
import random
import statistics
from collections.abc import Callable
from dataclasses import dataclass

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from backend.config import AtBudget
from backend.job.admission import DatasetAdmission, Limits, Turn, next_dataset
from backend.records import DoneReason
from tests.job.slot_simulation import Simulated, Source, run_slots

Draw = Callable[[], int]
STEPS = ["admit", "finish", "give back", "redo", "lower", "raise"]
same_examples_each_time = settings(max_examples=100, deadline=None, derandomize=True, database=None)


def lognormal(rng: random.Random, *, mean: float = 2000, log_sd: float = 1.0, cap: int | None = None) -> Draw:
    log_mean = math.log(mean) - log_sd**2 / 2

    def draw() -> int:
        length = max(1, round(rng.lognormvariate(log_mean, log_sd)))
        return length if cap is None else min(length, cap)

    return draw


def mostly_six_tokens(rng: random.Random) -> Draw:
    long = lognormal(rng)
    return lambda: 6 if rng.random() < 0.87 else long()


@dataclass(frozen=True, slots=True)
class Case:
    """A dataset with a budget, and how close 20 seeds must come to it on average."""

    budget: int
    lengths: Callable[[random.Random], Draw]
    mean_error_at_most: float
    cap: int | None = None
    server_tells_speed: bool = True


CASES = {
    "10M, log-sd 1": Case(10_000_000, lognormal, 0.003),
    "10M, log-sd 1, speed not told": Case(10_000_000, lognormal, 0.006, server_tells_speed=False),
    "10M, log-sd 0.5": Case(10_000_000, lambda r: lognormal(r, log_sd=0.5), 0.001),
    "10M, log-sd 1.5": Case(10_000_000, lambda r: lognormal(r, log_sd=1.5), 0.025),
    "10M, log-sd 1, cap 8192": Case(10_000_000, lambda r: lognormal(r, cap=8192), 0.001, cap=8192),
    "10M, log-sd 1.5, cap 8192": Case(10_000_000, lambda r: lognormal(r, log_sd=1.5, cap=8192), 0.002, cap=8192),
    "1M, log-sd 1": Case(1_000_000, lognormal, 0.02),
    "1M, log-sd 0.5": Case(1_000_000, lambda r: lognormal(r, log_sd=0.5), 0.005),
    "1M, log-sd 1.5": Case(1_000_000, lambda r: lognormal(r, log_sd=1.5), 0.08),
    "1M, log-sd 1, cap 8192": Case(1_000_000, lambda r: lognormal(r, cap=8192), 0.01, cap=8192),
    "1M, 87 % of 6 tokens": Case(1_000_000, mostly_six_tokens, 0.02),
    "100k, log-sd 1": Case(100_000, lognormal, 0.2),
    "100k, log-sd 0.5": Case(100_000, lambda r: lognormal(r, log_sd=0.5), 0.04),
    "100k, log-sd 1, cap 8192": Case(100_000, lambda r: lognormal(r, cap=8192), 0.1, cap=8192),
    "100k, 87 % of 6 tokens": Case(100_000, mostly_six_tokens, 0.3),
}


def run_alone(case: Case, seed: int) -> tuple[float, Simulated]:
    """One run of the case at 150 in flight: tokens / budget - 1, and how it went."""
    admission = DatasetAdmission(Limits(token_budget=case.budget), max_new_tokens=case.cap)
    source = Source(admission, case.lengths(random.Random(seed)))
    simulated = run_slots({"only": source}, 150, server_tells_speed=case.server_tells_speed)
    assert admission.limit_reached(simulated.duration_s) is DoneReason.BUDGET
    return admission.finished_tokens / case.budget - 1, simulated


def test_a_budget_of_ten_million_is_met_within_a_third_of_a_percent() -> None:
    errors = [abs(run_alone(CASES["10M, log-sd 1"], seed)[0]) for seed in range(4)]
    assert statistics.mean(errors) <= 0.0033


@pytest.mark.parametrize("name", ["1M, log-sd 0.5", "1M, log-sd 1, cap 8192", "100k, log-sd 0.5"])
def test_small_budgets_are_met_too(name: str) -> None:
    errors = [abs(run_alone(CASES[name], seed)[0]) for seed in range(8)]
    assert statistics.mean(errors) <= CASES[name].mean_error_at_most


@pytest.mark.drill
@pytest.mark.parametrize("name", CASES)
def test_budgets_are_met_over_20_seeds(name: str) -> None:
    case = CASES[name]
    runs = [run_alone(case, seed) for seed in range(20)]
    errors = [error for error, _ in runs]
    mean_error = statistics.mean(map(abs, errors))
    tail_s = statistics.mean(run.duration_s - run.first_idle_s for _, run in runs)
    idle_s = statistics.mean(run.idle_slot_s / 150 for _, run in runs)
    duration_s = statistics.mean(run.duration_s for _, run in runs)
    print(
        f"\n{name:30} mean |error| {mean_error:7.2%}  bias {statistics.mean(errors):+7.2%}"
        f"  largest {max(errors, key=abs):+7.2%}  tail {tail_s:5.0f} s  idle {idle_s:5.0f} s of {duration_s:5.0f} s a slot"
    )
    assert mean_error <= case.mean_error_at_most


@given(
    max_samples=st.integers(1, 12),
    steps=st.lists(
        st.tuples(st.sampled_from(["admit", "finish", "give back", "redo", "lower", "raise"]), st.integers(0, 10_000)),
        max_size=80,
    ),
)
@same_examples_each_time
def test_never_more_than_max_samples_whatever_happens(max_samples: int, steps: list[tuple[str, int]]) -> None:
    admission = DatasetAdmission(Limits(max_samples=max_samples), max_new_tokens=None)
    in_flight: list[int] = []
    durable: list[int] = []
    for now, (step, number) in enumerate(steps):
        if step == "admit":
            allowed = admission.may_admit(now)
            assert allowed == (len(in_flight) + len(durable) < max_samples)
            if allowed:
                admission.started(now, now)
                in_flight.append(now)
        elif step == "finish" and in_flight:
            admission.finished(in_flight.pop(number % len(in_flight)), now, number)
            durable.append(number)
        elif step == "give back" and in_flight:
            admission.given_back(in_flight.pop(number % len(in_flight)), now)
        elif step == "redo" and durable:
            admission.forget_sample(durable.pop())
        elif step in ("lower", "raise"):
            max_samples = max(1, max_samples + (-1 if step == "lower" else 1))
            admission.set_limits(Limits(max_samples=max_samples))
        assert (admission.in_flight, admission.finished_samples) == (len(in_flight), len(durable))
        assert admission.finished_tokens == sum(durable)
        full = not in_flight and len(durable) >= max_samples
        assert admission.limit_reached(now) is (DoneReason.SAMPLES if full else None)


def fill(admission: DatasetAdmission, now: float, *, first_key: int = 0, most: int = 10_000) -> list[int]:
    """Admit at one moment until the limits say no; the keys."""
    keys: list[int] = []
    while len(keys) < most and admission.may_admit(now):
        keys.append(first_key + len(keys))
        admission.started(keys[-1], now)
    return keys


@given(rounds=st.lists(st.tuples(st.integers(1, 60), st.floats(0, 500)), min_size=1, max_size=6))
@same_examples_each_time
def test_what_is_given_back_leaves_no_reservation_behind(rounds: list[tuple[int, float]]) -> None:
    fresh = DatasetAdmission(Limits(token_budget=200_000), max_new_tokens=8192)
    worn = DatasetAdmission(Limits(token_budget=200_000), max_new_tokens=8192)
    now, key = 0.0, 0
    for count, pause_s in rounds:
        keys = fill(worn, now, first_key=key, most=count)
        key += count
        now += pause_s
        for sent in keys:
            worn.given_back(sent, now)
        assert worn.expected_tokens(now) == 0
    assert abs(len(fill(worn, now, first_key=key)) - len(fill(fresh, now))) <= 3


@given(
    lengths=st.lists(st.integers(0, 8192), max_size=200),
    gaps_s=st.lists(st.floats(0, 50), min_size=1, max_size=20),
    speed=st.one_of(st.none(), st.floats(0, 100)),
    seed=st.integers(0, 1000),
)
@same_examples_each_time
def test_expectations_stay_finite_and_between_what_is_made_and_the_cap(
    lengths: list[int], gaps_s: list[float], speed: float | None, seed: int
) -> None:
    rng = random.Random(seed)
    admission = DatasetAdmission(Limits(token_budget=10**9), max_new_tokens=8192)
    now, running = 0.0, []
    for key, length in enumerate(lengths):
        assert admission.may_admit(now, speed)
        admission.started(key, now)
        running.append(key)
        now += gaps_s[key % len(gaps_s)]
        if rng.random() < 0.8:
            admission.finished(running.pop(rng.randrange(len(running))), now, length)
        expected = admission.expected_tokens(now) - admission.finished_tokens
        assert 0 <= expected <= 8192 * admission.in_flight * (1 + 1e-9)
    assert 0 < admission.mean_tokens <= 8192


def test_without_limits_nothing_blocks() -> None:
    admission = DatasetAdmission(Limits(), max_new_tokens=None)
    assert len(fill(admission, 0.0, most=5000)) == 5000
    for key in range(5000):
        admission.finished(key, 60.0, 100_000)
    assert admission.limit_reached(60.0) is None


def test_a_raised_budget_admits_again_and_a_lowered_one_stops() -> None:
    rng = random.Random(3)
    admission = DatasetAdmission(Limits(token_budget=500_000), max_new_tokens=8192)
    run_slots({"only": Source(admission, lognormal(rng, cap=8192))}, 150)
    assert admission.limit_reached(1e6) is DoneReason.BUDGET
    admission.set_limits(Limits(token_budget=1_500_000))
    assert admission.limit_reached(1e6) is None
    keys = fill(admission, 1e6, first_key=10**6, most=150)
    assert len(keys) == 150
    admission.set_limits(Limits(token_budget=400_000))
    assert not admission.may_admit(1e6)
    assert admission.limit_reached(1e6) is None, "it drains first"
    for key in keys:
        admission.finished(key, 1e6 + 200, 2000)
    assert admission.limit_reached(1e6 + 200) is DoneReason.BUDGET


@pytest.mark.parametrize("lengths_known", [True, False])
def test_a_resumed_dataset_lands_on_its_budget(lengths_known: bool) -> None:
    errors = []
    for seed in range(4):
        draw = lognormal(random.Random(seed), cap=8192)
        done = [draw() for _ in range(700)]
        admission = DatasetAdmission(
            Limits(token_budget=2_000_000),
            finished_samples=len(done),
            finished_tokens=sum(done),
            finished_lengths=done if lengths_known else (),
            max_new_tokens=8192,
        )
        run_slots({"only": Source(admission, draw)}, 150)
        errors.append(abs(admission.finished_tokens / 2_000_000 - 1))
    assert statistics.mean(errors) <= 0.01


def test_a_dataset_resumed_at_its_limit_is_done_at_once() -> None:
    spent = DatasetAdmission(Limits(token_budget=1000), finished_samples=3, finished_tokens=999, max_new_tokens=None)
    counted = DatasetAdmission(Limits(max_samples=3), finished_samples=3, finished_tokens=999, max_new_tokens=None)
    assert spent.limit_reached(0.0) is DoneReason.BUDGET
    assert counted.limit_reached(0.0) is DoneReason.SAMPLES


def test_a_superseded_sample_makes_room_for_another() -> None:
    admission = DatasetAdmission(Limits(max_samples=2), finished_samples=2, finished_tokens=500, max_new_tokens=None)
    admission.forget_sample(100)
    assert (admission.finished_samples, admission.finished_tokens) == (1, 400)
    assert admission.may_admit(0.0)


def test_even_a_budget_below_one_answer_gets_one() -> None:
    admission = DatasetAdmission(Limits(token_budget=5), max_new_tokens=None)
    assert len(fill(admission, 0.0)) == 1


def test_requests_in_flight_count_as_at_least_this_long() -> None:
    """With 150 in flight and 50 finished, the mean of the finished ones is far too short; the estimate is not."""
    admission = DatasetAdmission(Limits(token_budget=10**8), max_new_tokens=None)
    draw = lognormal(random.Random(5))
    lengths = {key: draw() for key in range(200)}
    speed = 10.0
    for key in lengths:
        admission.started(key, 0.0)
    finished = sorted(lengths, key=lambda key: lengths[key])[:50]
    for key in finished:
        admission.finished(key, lengths[key] / speed, lengths[key])
    now = lengths[finished[-1]] / speed
    for later in range(20):
        admission.expected_tokens(now + 30 + later)
    assert statistics.mean(lengths[key] for key in finished) < 600
    assert 1200 < admission.mean_tokens < 3500


def test_time_in_which_the_server_makes_nothing_ages_no_request() -> None:
    admission = DatasetAdmission(Limits(token_budget=10**6), max_new_tokens=None)
    admission.may_admit(0.0, 10.0)
    admission.started("a", 0.0)
    admission.may_admit(20.0, 10.0)
    before = admission.expected_tokens(20.0)
    admission.may_admit(20.0, 0.0)
    assert admission.expected_tokens(5000.0) == pytest.approx(before, rel=0.1)
    admission.may_admit(5000.0, 10.0)
    assert admission.expected_tokens(6000.0) > before + 5000


def test_cancel_admits_until_the_budget_is_spent_and_then_names_what_to_abort() -> None:
    admission = DatasetAdmission(Limits(token_budget=1000, at_budget=AtBudget.CANCEL), max_new_tokens=None)
    keys = fill(admission, 0.0, most=8)
    assert len(keys) == 8
    admission.finished(keys[0], 1.0, 999)
    assert admission.may_admit(1.0)
    assert admission.to_cancel() == ()
    admission.finished(keys[1], 2.0, 1)
    assert not admission.may_admit(2.0)
    assert admission.to_cancel() == tuple(keys[2:])
    for key in admission.to_cancel():
        admission.given_back(key, 2.0)
    assert admission.limit_reached(2.0) is DoneReason.BUDGET


def test_one_key_is_in_flight_once() -> None:
    admission = DatasetAdmission(Limits(), max_new_tokens=None)
    admission.started("a", 0.0)
    with pytest.raises(ValueError, match="in flight already"):
        admission.started("a", 1.0)
    admission.given_back("a", 2.0)
    with pytest.raises(KeyError):
        admission.finished("a", 3.0, 10)
    assert admission.finished_samples == 0


@dataclass(frozen=True, slots=True)
class Seen:
    may_admit: bool
    prompt_ready: bool
    samples_begun: int = 0


@given(st.lists(st.tuples(st.booleans(), st.booleans()), max_size=6))
@same_examples_each_time
def test_the_first_in_order_that_can_use_the_slot_gets_it(seen: list[tuple[bool, bool]]) -> None:
    order = [f"d{i}" for i in range(len(seen))]
    views = {name: Seen(*flags) for name, flags in zip(order, seen, strict=True)}
    able = [name for name in order if views[name].may_admit and views[name].prompt_ready]
    assert next_dataset(order, views) == (Turn(able[0]) if able else None)
    assert next_dataset(order[::-1], views) == (Turn(able[-1]) if able else None)


def test_each_dataset_after_the_first_gets_its_pilot_before_the_first_goes_on() -> None:
    order = ["A", "B", "C", "D"]
    views = {
        "A": Seen(True, True),
        "B": Seen(True, True, samples_begun=16),
        "C": Seen(False, True),
        "D": Seen(True, True, samples_begun=15),
    }
    assert next_dataset(order, views, pilot_samples=16) == Turn("D", pilot=True)
    views["D"] = Seen(True, True, samples_begun=16)
    assert next_dataset(order, views, pilot_samples=16) == Turn("A")
    # whose turn it is needs no pilot
    assert next_dataset(["C", "D"], {**views, "D": Seen(True, True)}, pilot_samples=16) == Turn("D")


def test_pilots_take_their_slots_first_and_keep_the_slots_full() -> None:
    rng = random.Random(5)
    sources = {
        name: Source(DatasetAdmission(Limits(max_samples=300), max_new_tokens=8192), lognormal(rng, cap=8192))
        for name in ("first", "second", "third")
    }
    simulated = run_slots(sources, 64, pilot_samples=16)
    assert simulated.most_in_flight["first"] == 64
    assert simulated.last_dataset_drains_s is not None
    assert simulated.busy_slot_s_before >= 0.99 * 64 * simulated.last_dataset_drains_s
    assert [source.admission.finished_samples for source in sources.values()] == [300, 300, 300]


def test_requests_in_flight_tell_how_far_they_have_come_and_what_is_lost_when_sent_again() -> None:
    admission = DatasetAdmission(Limits(), max_new_tokens=None)
    admission.may_admit(0.0, 50.0)
    for key in ("a", "b"):
        admission.started(key, 0.0)
    assert admission.made_tokens(10.0) == [500.0, 500.0]
    assert admission.begins_anew("a", 10.0) == 500.0
    assert admission.made_tokens(20.0) == [500.0, 1000.0]
    admission.may_admit(20.0, 0.0)  # no server: nothing is made
    assert admission.made_tokens(60.0) == [500.0, 1000.0]


def test_a_lower_cap_shortens_what_is_expected() -> None:
    admission = DatasetAdmission(Limits(), max_new_tokens=None)
    rng = random.Random(2)
    draw = lognormal(rng, mean=3000)
    for key in range(200):
        admission.started(key, float(key))
        admission.finished(key, float(key), draw())
    admission.started("x", 200.0)
    admission.expected_tokens(202.0)
    before = admission.mean_tokens
    admission.set_cap(1024)
    assert admission.cap_tokens == 1024
    assert 700 < admission.mean_tokens < 1024 < before


def test_slots_stay_full_until_the_last_of_four_datasets_drains() -> None:
    rng = random.Random(11)
    sources = {
        "budget": Source(DatasetAdmission(Limits(token_budget=1_000_000), max_new_tokens=8192), lognormal(rng, cap=8192)),
        "samples": Source(DatasetAdmission(Limits(max_samples=400), max_new_tokens=8192), lognormal(rng, mean=500, cap=8192)),
        "prompts": Source(DatasetAdmission(Limits(), max_new_tokens=8192), lognormal(rng, log_sd=1.5, cap=8192), prompts=300),
        "last": Source(DatasetAdmission(Limits(token_budget=800_000), max_new_tokens=8192), lognormal(rng, cap=8192)),
    }
    simulated = run_slots(sources, 150)
    assert simulated.last_dataset_drains_s is not None
    assert simulated.busy_slot_s_before >= 0.98 * 150 * simulated.last_dataset_drains_s
    assert sources["samples"].admission.finished_samples == 400
    assert sources["prompts"].admission.finished_samples == 300
    for name in ("budget", "last"):
        admission = sources[name].admission
        assert admission.finished_tokens == pytest.approx(admission.limits.token_budget, rel=0.03)
    assert simulated.most_in_flight["budget"] == 150
