"""Lengths and outcomes over datasets and over time, and the charts of them."""

from __future__ import annotations

from pathlib import Path

import pytest

from backend.records import Facts, Outcome
from backend.report.distribution_charts import NAMED, drift_chart, lengths_chart, outcomes_chart
from backend.report.distributions import MOST_SPANS, LengthsOf, read_lengths_by_dataset, read_spans
from backend.run_dir import RunDir
from tests.finished_samples import add_open, sample, seal
from tests.made_run import make_run

AT = 1_700_000_040.0  # the beginning of a minute


@pytest.fixture
def run(tmp_path: Path) -> RunDir:
    run = make_run(tmp_path)
    rows = [sample(i, started_at=AT, finished_at=AT + 60 * (i // 2) + 1, completion_tokens=7 + 8 * (i % 2)) for i in range(6)]
    add_open(run, [*rows, sample(9, started_at=AT, finished_at=AT + 2, facts=Facts(answer_tokens=0), completion_tokens=0)])
    seal(run, "alpha", 1)
    add_open(run, [sample(0, dataset="beta", started_at=AT, finished_at=AT + 3, completion_tokens=63)])
    return run


def test_shares_of_a_dataset_add_up_over_its_bins(run: RunDir) -> None:
    alpha, beta = read_lengths_by_dataset(run, ["alpha", "beta", "none"])
    assert (alpha.answers, beta.answers) == (7, 1)
    assert sum(alpha.shares) == pytest.approx(1)
    assert len(alpha.edges_tokens) == len(alpha.shares) + 1
    assert alpha.shares[0] == pytest.approx(1 / 7)  # the empty one
    assert (beta.edges_tokens[0], beta.shares) == (63, (1.0,))
    assert read_lengths_by_dataset(run, ["beta"]) == [beta]


def test_spans_tell_lengths_and_the_share_of_each_outcome(run: RunDir) -> None:
    spans = read_spans(run, "alpha")
    assert spans.step_s == 60
    assert spans.at == (AT, AT + 60, AT + 120)
    assert spans.samples == (3, 2, 2)
    assert spans.p50_tokens == (7, 11, 11)
    assert spans.shares == {Outcome.OK: pytest.approx((2 / 3, 1, 1)), Outcome.EMPTY: pytest.approx((1 / 3, 0, 0))}


def test_a_run_without_samples_has_no_span(tmp_path: Path) -> None:
    assert read_spans(make_run(tmp_path), None).at == ()


def test_a_long_run_has_few_spans(run: RunDir) -> None:
    add_open(run, [sample(20, started_at=AT, finished_at=AT + 14 * 86_400)])
    spans = read_spans(run, None)
    assert spans.step_s == 6 * 3600
    assert len(spans.at) <= MOST_SPANS


def test_charts_name_what_they_show(run: RunDir) -> None:
    lengths, spans = read_lengths_by_dataset(run, ["alpha", "beta"]), read_spans(run, None)
    figure = lengths_chart(lengths, {"alpha": 100, "beta": 100})
    assert [trace.name for trace in figure.data] == ["alpha", "beta"]
    assert "dotted: the cap of 100" in figure.layout.title.subtitle.text
    assert len(figure.layout.shapes) == 2
    outcomes = outcomes_chart(spans, scope="All datasets")
    assert [trace.name for trace in outcomes.data] == ["ok", "empty"]
    drift = drift_chart(spans, scope="All datasets", cap_tokens=100)
    assert [trace.name for trace in drift.data] == ["9 of 10", "median", "1 of 10"]


def test_no_more_datasets_are_drawn_than_can_be_told_apart() -> None:
    many = [LengthsOf(f"d{i}", i + 1, (0.0, 1.0), (1.0,)) for i in range(NAMED + 3)]
    figure = lengths_chart(many, {})
    assert [trace.name for trace in figure.data] == [f"d{i}" for i in range(3, NAMED + 3)]
    assert "3 smaller datasets left out" in figure.layout.title.subtitle.text
