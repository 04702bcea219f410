"""One dataset in depth: lengths, pace, how samples ended, and why some were refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from backend.config import load
from backend.records import Facts, Row
from backend.report.dataset import (
    cap_tokens,
    is_early,
    read_finish_reasons,
    read_lengths,
    read_pace,
    read_refusals,
    read_totals,
)
from backend.report.dataset_charts import lengths_chart, pace_chart
from backend.report.outcome_rates import read_rates
from backend.run_dir import RunDir
from tests.finished_samples import add_open, sample
from tests.made_run import CONFIG, make_run, write_config


@pytest.fixture
def run(tmp_path: Path) -> RunDir:
    return make_run(tmp_path)


def at(number: int, finished_at: float, tokens: int, **changes: Any) -> Row:
    return sample(number, started_at=finished_at - 5, finished_at=finished_at, completion_tokens=tokens, **changes)


def test_a_dataset_without_samples_has_no_figures(run: RunDir) -> None:
    totals = read_totals(run, "alpha")
    assert (totals.samples, totals.mean_tokens, totals.completion_tokens) == (0, None, None)
    assert read_lengths(run, "alpha").counts == ()
    assert read_pace(run, "alpha", totals, 100.0).at == ()
    assert read_rates(run, "alpha") == read_finish_reasons(run, "alpha") == read_refusals(run, "alpha") == []


def test_every_answer_lies_between_the_edges_of_its_bin(run: RunDir) -> None:
    lengths_of = [0, 1, 2, 3, 7, 8, 100, 101, 4095, 4096]
    add_open(run, [sample(i, completion_tokens=tokens) for i, tokens in enumerate(lengths_of)])
    add_open(run, [sample(50, completion_tokens=0, finish_reason="rejected")])
    lengths = read_lengths(run, "alpha")
    assert len(lengths.edges_tokens) == len(lengths.counts) + 1
    assert sum(lengths.counts) == len(lengths_of)  # the refused one has no length
    for low, high, number in zip(lengths.edges_tokens, lengths.edges_tokens[1:], lengths.counts, strict=False):
        assert number == sum(low - 1e-6 <= tokens < high - 1e-6 for tokens in lengths_of)


def test_quantiles_are_those_of_the_answers(run: RunDir) -> None:
    add_open(run, [sample(i, completion_tokens=i) for i in range(101)])
    lengths = read_lengths(run, "alpha")
    assert (lengths.p10_tokens, lengths.p50_tokens, lengths.p90_tokens) == (10, 50, 90)


def test_many_in_flight_make_the_finished_ones_early(run: RunDir) -> None:
    add_open(run, [sample(i) for i in range(100)])
    totals = read_totals(run, "alpha")
    assert is_early(totals, 26)
    assert not is_early(totals, 25)
    assert not is_early(totals, None)
    assert not is_early(totals, 0)


def test_pace_counts_idle_spans_as_zero_and_leaves_the_running_one_out(run: RunDir) -> None:
    add_open(run, [at(0, 1200.0, 10), at(1, 1259.0, 20), at(2, 1380.0, 60), at(3, 1445.0, 500)])
    pace = read_pace(run, "alpha", read_totals(run, "alpha"), now=1450.0)
    assert pace.step_s == 60
    assert pace.at == (1200.0, 1260.0, 1320.0, 1380.0)
    assert pace.tokens_per_hour == (30 * 60, 0, 0, 60 * 60)


def test_the_steps_of_a_long_run_are_long(run: RunDir) -> None:
    add_open(run, [at(0, 1000.0, 10), at(1, 1000.0 + 14 * 86400, 20)])
    pace = read_pace(run, "alpha", read_totals(run, "alpha"), now=1e9)
    assert pace.step_s == 6 * 3600
    assert len(pace.at) <= 240


def test_outcomes_and_reasons_add_up(run: RunDir) -> None:
    add_open(run, [sample(i, finish_reason="length") for i in range(2)])
    add_open(run, [sample(10 + i, facts=Facts(answer_tokens=4)) for i in range(3)])
    assert [(one.name, one.overall and one.overall.hits) for one in read_rates(run, "alpha")] == [("ok", 3), ("truncated", 2)]
    assert [(one.name, one.samples) for one in read_finish_reasons(run, "alpha")] == [("stop", 3), ("length", 2)]


def test_refusals_that_differ_in_numbers_only_are_one(run: RunDir) -> None:
    words = ["input of 9000 tokens > 8192", "input of 12345 tokens > 8192", "\x1b[31mno such role"]
    add_open(
        run,
        [at(i, 100.0 + i, 0, finish_reason="rejected", error=error) for i, error in enumerate(words)],
    )
    long, other = read_refusals(run, "alpha")
    assert (long.words, long.samples, long.first_at, long.last_at) == (words[1], 2, 100.0, 101.0)
    assert other.words == "\\x1b[31mno such role"


def test_the_cap_is_the_datasets_own_or_the_runs(tmp_path: Path) -> None:
    text = CONFIG.replace("concurrency = 8", "concurrency = 8\nmax_new_tokens = 900") + "generation.max_new_tokens = 70\n"
    settings = load(write_config(tmp_path, text=text))
    assert (cap_tokens(settings, "alpha"), cap_tokens(settings, "beta")) == (900, 70)


def test_the_lengths_chart_marks_median_and_cap_and_names_tokens_on_its_axis(run: RunDir) -> None:
    add_open(run, [sample(i, completion_tokens=100 + i) for i in range(900)])
    figure = lengths_chart(read_lengths(run, "alpha"), 2000)
    words = [annotation.text for annotation in figure.layout.annotations]
    assert any("median 550" in word for word in words)
    assert any("cap 2,000" in word for word in words)
    assert "1k" in figure.layout.xaxis.ticktext
    assert figure.layout.xaxis.range[1] > figure.layout.xaxis.tickvals[-1] - 1
    assert sum(figure.data[0].y) == 900
    low, high = figure.data[0].customdata[0]
    assert low <= 100 <= high


def test_a_cap_far_beyond_the_answers_does_not_squeeze_them(run: RunDir) -> None:
    add_open(run, [sample(i, completion_tokens=10) for i in range(9)])
    figure = lengths_chart(read_lengths(run, "alpha"), 1_000_000)
    assert not any("cap" in annotation.text for annotation in figure.layout.annotations)
    assert len(figure.data[0].y) == 1


def test_the_pace_chart_spans_what_is_known(run: RunDir) -> None:
    add_open(run, [at(i, 1200.0 + 60 * i, 100) for i in range(10)])
    pace = read_pace(run, "alpha", read_totals(run, "alpha"), now=5000.0)
    figure = pace_chart(pace, now=5000.0)
    assert [v for v in figure.data[0].y if v is not None] == [100 * 60] * 10
