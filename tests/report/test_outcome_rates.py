"""Rates of outcomes with what chance allows for; values worked out by hand or taken from tables."""

from __future__ import annotations

from pathlib import Path

import pytest

from backend.outcomes.similarity import NEAR_OTHERS
from backend.records import Facts, Outcome
from backend.report.outcome_rates import LATELY, Rate, read_rates, wilson
from backend.report.outcome_words import DEFINITIONS, OUTCOME_WORDS, REPEATS
from tests.finished_samples import add_open, sample, seal
from tests.made_run import make_run


@pytest.mark.parametrize(
    ("hits", "of", "low", "high"),
    [
        (0, 10, 0.0, 0.2775),
        (10, 10, 0.7225, 1.0),
        (5, 10, 0.2366, 0.7634),
        (14, 16, 0.6398, 0.9650),
        (870, 1000, 0.8477, 0.8894),
    ],
)
def test_intervals_are_those_of_wilson(hits: int, of: int, low: float, high: float) -> None:
    rate = wilson(hits, of)
    assert (rate.low, rate.high) == pytest.approx((low, high), abs=1e-4)
    assert rate.low <= rate.share <= rate.high


def test_rates_are_told_over_all_samples_and_over_the_last_ones(tmp_path: Path) -> None:
    run = make_run(tmp_path)
    assert read_rates(run, "alpha") == []
    add_open(run, [sample(i, facts=Facts(answer_tokens=0), completion_tokens=6) for i in range(10)])
    seal(run, "alpha", 1)
    add_open(run, [sample(i) for i in range(10, 10 + LATELY)])
    ok, empty = read_rates(run, "alpha")
    assert (ok.name, ok.overall) == (Outcome.OK, wilson(LATELY, LATELY + 10))
    assert ok.lately == wilson(LATELY, LATELY)
    assert (empty.name, empty.completion_tokens) == (Outcome.EMPTY, 60)
    assert empty.overall == wilson(10, LATELY + 10)
    assert empty.lately == Rate(0, LATELY, 0.0, wilson(0, LATELY).high)


def test_answers_that_repeat_others_stand_beside_the_outcomes(tmp_path: Path) -> None:
    run = make_run(tmp_path)
    add_open(run, [sample(i, facts=Facts(answer_tokens=90, simhash=-7)) for i in range(12)])
    seal(run, "alpha", 1)
    add_open(run, [sample(i, facts=Facts(answer_tokens=90, simhash=-7)) for i in range(12, 20)])
    ok, repeats = read_rates(run, "alpha")
    assert ok.name == Outcome.OK
    assert (repeats.name, repeats.overall, repeats.lately) == (REPEATS, None, wilson(20 - NEAR_OTHERS, 20))


def test_every_outcome_is_defined_and_has_words() -> None:
    assert set(DEFINITIONS) - {REPEATS} == set(OUTCOME_WORDS) == set(Outcome)
