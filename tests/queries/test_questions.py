"""Each question of the catalogue on a small run, with values worked out by hand."""

from __future__ import annotations

import threading
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from backend.records import Facts, Row
from backend.report.connection import QUERIES
from backend.report.questions import QUESTIONS, Kind, Question, defaults
from backend.run_dir import RunDir, open_ledger, open_state
from tests.finished_samples import add_open, replace_row, sample, seal
from tests.made_run import make_run
from tests.queries.asking import ask

HOUR_AT = 1_699_999_200.0  # the beginning of an hour
OK, NOTHING = Facts(answer_tokens=4, simhash=0b1111), Facts(answer_tokens=0)


def answer(number: int, began_s: float, took_s: float, tokens: int, **changes: Any) -> Row:
    started_at = HOUR_AT + began_s
    values = {"started_at": started_at, "finished_at": started_at + took_s, "completion_tokens": tokens, "facts": OK}
    return sample(number, **(values | changes))


ROWS = [
    answer(0, 0, 10, 7),
    answer(1, 0, 20, 15, finish_reason="length"),
    answer(2, 5, 1, 0, facts=NOTHING),
    answer(3, 6, 0, 0, finish_reason="rejected", error="HTTP 400: no"),
    answer(0, 3600, 10, 31, dataset="beta", source="openrouter", cost_usd=0.5, first_token_at=HOUR_AT + 3602),
]


@pytest.fixture
def run(tmp_path: Path) -> RunDir:
    """alpha: 4 samples, two of them sealed; beta: one, open."""
    run = make_run(tmp_path)
    add_open(run, ROWS[:2])
    seal(run, "alpha", 1)
    add_open(run, ROWS[2:])
    return run


def test_progress_by_dataset(run: RunDir) -> None:
    alpha, beta = ask(run, "progress_by_dataset")
    assert alpha == {
        "dataset": "alpha", "samples": 4, "max_samples": None, "completion_tokens": 22, "token_budget": 100_000,
        "prompt_tokens": 12, "mean_tokens": pytest.approx(22 / 3), "rejected": 1,
        "first_finished_at": HOUR_AT + 6, "last_finished_at": HOUR_AT + 20,
    }  # fmt: skip
    assert (beta["dataset"], beta["samples"], beta["max_samples"], beta["token_budget"]) == ("beta", 1, 3, None)


def test_tokens_by_hour(run: RunDir) -> None:
    rows = [tuple(row.values()) for row in ask(run, "tokens_by_hour", dataset=None)]
    assert rows == [(HOUR_AT, "alpha", 4, 22, 12), (HOUR_AT + 3600, "beta", 1, 31, 3)]
    assert len(ask(run, "tokens_by_hour", dataset="beta")) == 1


@pytest.mark.parametrize(
    ("by", "expected"),
    [
        ("dataset", [("alpha", 0, 1), ("alpha", 7, 1), ("alpha", 15, 1), ("beta", 31, 1)]),
        ("outcome", [("empty", 0, 1), ("ok", 7, 1), ("ok", 31, 1), ("truncated", 15, 1)]),
        ("source", [("local", 0, 1), ("local", 7, 1), ("local", 15, 1), ("openrouter", 31, 1)]),
        ("finish reason", [("length", 15, 1), ("stop", 0, 1), ("stop", 7, 1), ("stop", 31, 1)]),
    ],
)
def test_length_distribution(run: RunDir, by: str, expected: list[tuple[str, int, int]]) -> None:
    rows = ask(run, "length_distribution", dataset=None, by=by, per_octave=1)
    assert [tuple(row.values()) for row in rows] == expected


def test_quantiles(run: RunDir) -> None:
    alpha, beta = ask(run, "quantiles", dataset=None, by="dataset")
    assert (alpha["name"], alpha["answers"], alpha["mean_tokens"]) == ("alpha", 3, pytest.approx(22 / 3))
    # 0, 7, 15: a quarter of the way lies in the middle between 0 and 7
    assert (alpha["shortest_tokens"], alpha["p25_tokens"], alpha["p50_tokens"], alpha["longest_tokens"]) == (0, 3.5, 7, 15)
    assert alpha["p90_tokens"] == pytest.approx(7 + 0.8 * 8)
    assert (beta["p10_tokens"], beta["p99_tokens"]) == (31, 31)


def test_drift(run: RunDir) -> None:
    first, second = ask(run, "drift", dataset=None, step_s=3600)
    assert (first["began_at"], first["samples"], first["p50_tokens"]) == (HOUR_AT, 4, 7)
    assert (first["share_ok"], first["share_capped"], first["share_bad"]) == (0.25, 0.25, 0.25)
    assert (second["began_at"], second["mean_tokens"], second["share_ok"]) == (HOUR_AT + 3600, 31, 1)


def test_finish_reasons_and_outcomes(run: RunDir) -> None:
    reasons = {row["name"]: (row["samples"], row["completion_tokens"]) for row in ask(run, "finish_reasons", dataset=None)}
    assert reasons == {"stop": (3, 38), "length": (1, 15), "rejected": (1, 0)}
    outcomes = {row["name"]: row["samples"] for row in ask(run, "outcomes", dataset="alpha")}
    assert outcomes == {"ok": 1, "truncated": 1, "empty": 1, "rejected": 1}


def test_outcomes_over_time(run: RunDir) -> None:
    rows = [tuple(row.values()) for row in ask(run, "outcomes_over_time", dataset=None, step_s=3600)]
    at = HOUR_AT
    assert rows == [
        (at, "empty", 1), (at, "ok", 1), (at, "rejected", 1), (at, "truncated", 1), (at + 3600, "ok", 1)
    ]  # fmt: skip


def test_samples_of_an_outcome(run: RunDir) -> None:
    (row,) = ask(run, "samples_of_an_outcome", dataset=None, outcome="empty", limit=9)
    assert (row["dataset"], row["position"], row["outcome"]) == ("alpha", 2, "empty")
    rows = ask(run, "samples_of_an_outcome", dataset=None, outcome="ok", limit=9)
    assert [row["dataset"] for row in rows] == ["beta", "alpha"]  # the newest first
    assert ask(run, "samples_of_an_outcome", dataset="beta", outcome="empty", limit=9) == []


def test_longest_and_shortest(run: RunDir) -> None:
    rows = ask(run, "longest_and_shortest", dataset=None, limit=2)
    assert [(row["which"], row["completion_tokens"], row["took_s"]) for row in rows] == [
        ("longest", 31, 10), ("longest", 15, 20), ("shortest", 0, 1), ("shortest", 7, 10)
    ]  # fmt: skip


def test_request_speed(run: RunDir) -> None:
    alpha, beta = ask(run, "request_speed", dataset=None)
    assert (alpha["requests"], alpha["took_p50_s"], alpha["p50_tokens_per_s"]) == (3, 10, 0.7)  # 0.7, 0.75 and 0 tokens/s
    assert alpha["mean_first_token_s"] is None
    assert (beta["source"], beta["mean_first_token_s"], beta["p50_tokens_per_s"]) == ("openrouter", 2, 3.1)


def test_a_clock_that_was_set_back_by_a_millionth_breaks_no_speed(tmp_path: Path) -> None:
    run = make_run(tmp_path)
    add_open(run, [answer(0, 10, 10, 8000), answer(1, 10, -0.000002, 8000)])
    (alpha,) = ask(run, "request_speed", dataset=None)
    assert alpha["requests"] == 2


def test_throughput_by_concurrency(tmp_path: Path) -> None:
    run = make_run(tmp_path)
    # one request for 10 s, then two for 10 s, then none for 10 s, then one for 5 s of a span of 10 s
    add_open(run, [answer(0, 0, 20, 20), answer(1, 10, 10, 30), answer(2, 30, 5, 40)])
    rows = ask(run, "throughput_by_concurrency", step_s=10, width=1)
    assert [{name: round(value, 6) for name, value in row.items()} for row in rows] == [
        {"from_in_flight": 0, "spans": 1, "in_flight": 0.5, "tokens_per_s": 4, "tokens_per_s_a_request": 8},
        {"from_in_flight": 1, "spans": 1, "in_flight": 1, "tokens_per_s": 1, "tokens_per_s_a_request": 1},
        {"from_in_flight": 2, "spans": 1, "in_flight": 2, "tokens_per_s": 4, "tokens_per_s_a_request": 2},
    ]


def test_token_budget_use(run: RunDir) -> None:
    replace_row(run, ROWS[0])
    alpha, beta = ask(run, "token_budget_use")
    assert (alpha["completion_tokens"], alpha["left_tokens"], alpha["replaced_tokens"]) == (15, 99_985, 7)
    assert alpha["share_used"] == pytest.approx(15 / 100_000)
    assert (beta["token_budget"], beta["share_used"], beta["left_tokens"], beta["max_samples"]) == (None, None, None, 3)


def test_restarts_and_lost_work(run: RunDir) -> None:
    with closing(open_state(run)) as con:
        for at, kind in ((5.0, "run.started"), (7.0, "engine.ended"), (9.0, "run.started"), (9.5, "run.told")):
            con.execute(
                "INSERT INTO events (at, kind, subject, severity, message, who, details)"
                " VALUES (?, ?, 'run', 'info', '', '', '')",
                (at, kind),
            )
    replace_row(run, ROWS[0])
    rows = [tuple(row.values()) for row in ask(run, "restarts_and_lost_work")]
    assert rows == [
        ("replaced in alpha: redo", 1, 1, 7, 1.0, 1.0),
        ("the supervisor started", 2, None, None, 5.0, 9.0),
        ("an engine ended by itself", 1, None, None, 7.0, 7.0),
    ]


def test_api_spend(run: RunDir) -> None:
    with closing(open_ledger(run)) as con:
        for cost, outcome in ((0.5, "finished"), (0.25, "failed"), (None, "aborted")):
            con.execute(
                "INSERT INTO billed_attempts (at, source, dataset, sample_id, turn, attempt, cost_usd, outcome)"
                " VALUES (1.0, 'openrouter', 'beta', 's000000', 0, 1, ?, ?)",
                (cost, outcome),
            )
    assert ask(run, "api_spend") == [{
        "source": "openrouter", "dataset": "beta", "samples": 1, "completion_tokens": 31, "samples_usd": 0.5,
        "usd_a_sample": 0.5, "tries": 3, "billed_usd": 0.75, "in_vain_usd": 0.25, "tries_of_unknown_cost": 1,
    }]  # fmt: skip


def test_duplicate_prompts(run: RunDir) -> None:
    add_open(run, [answer(9, 50, 1, 5, messages='{"messages":[{"role":"user","content":"other"}]}')])
    (row,) = ask(run, "duplicate_prompts", dataset=None, limit=9)
    assert (row["samples"], row["datasets"], row["dataset"], row["position"]) == (5, 2, "alpha", 0)
    assert row["different_answers"] == 1
    assert "2+2?" in row["prompt"]
    assert ask(run, "duplicate_prompts", dataset="beta", limit=9) == []


def test_duplicate_answers(run: RunDir) -> None:
    add_open(run, [answer(9, 50, 1, 5, answer="four 1"), answer(10, 50, 1, 5, answer=""), answer(11, 50, 1, 5, answer="")])
    rows = ask(run, "duplicate_answers", dataset=None, limit=9)
    # beta's only answer is "four 0", as alpha's first; two that are empty are no duplicates
    assert [(row["samples"], row["datasets"], row["dataset"], row["position"], row["answer"]) for row in rows] == [
        (2, 2, "alpha", 0, "four 0"), (2, 1, "alpha", 1, "four 1")
    ]  # fmt: skip


def test_near_duplicates(tmp_path: Path) -> None:
    run = make_run(tmp_path)
    far, base = 0x0F0F_0F0F_0F0F_0F0F, -(2**63) + 12345
    hashes = [base, base, base ^ 0b111, base ^ (1 << 62 | 1 << 30 | 1), base ^ 0b1111, far, None, None]
    rows = [answer(i, i, 1, 5, facts=replace(OK, simhash=h)) for i, h in enumerate(hashes)]
    add_open(run, rows[:4])
    seal(run, "alpha", 1)
    add_open(run, rows[4:])
    groups = ask(run, "near_duplicates", dataset=None, bits=3, limit=9)
    # two equal ones and two that differ from them in three bits; the one that differs in four is near one of those only
    assert [(g["samples"], g["variants"], g["position"]) for g in groups] == [(4, 3, 0)]
    exact = ask(run, "near_duplicates", dataset=None, bits=0, limit=9)
    assert [(g["samples"], g["variants"]) for g in exact] == [(2, 1)]


def test_search(run: RunDir) -> None:
    def found(text: str, **more: Any) -> list[tuple[str, int]]:
        rows = ask(
            run,
            "search_texts",
            text=text,
            limit=9,
            order="newest",
            **({"dataset": None, "outcome": None, "source": None} | more),
        )
        return [(row["dataset"], row["position"]) for row in rows]

    assert found("FOUR 1") == [("alpha", 1)]
    assert found("four 0") == [("beta", 0), ("alpha", 0)]
    assert found("2+2?", dataset="alpha", outcome="empty") == [("alpha", 2)]  # within the prompt, and no pattern
    assert found("http 400") == [("alpha", 3)]
    assert found(".*") == []


def test_two_runs(run: RunDir, tmp_path: Path) -> None:
    other = make_run(tmp_path / "other")
    asked_else = '{"messages":[{"role":"user","content":"3+3?"}]}'
    add_open(other, [answer(0, 0, 1, 3, facts=NOTHING), answer(1, 0, 1, 25, messages=asked_else), answer(7, 0, 1, 99)])
    (alpha,) = ask(run, "compared_lengths", other=other, by="id")
    assert (alpha["dataset"], alpha["prompts"]) == ("alpha", 2)
    assert (alpha["mean_tokens"], alpha["other_mean_tokens"]) == (11, 14)  # 7 and 15 against 3 and 25
    assert (alpha["mean_difference_tokens"], alpha["share_longer"], alpha["share_ok"]) == (-3, 0.5, 0.5)
    rows = [tuple(row.values()) for row in ask(run, "compared_outcomes", other=other, by="id")]
    assert rows == [("ok", "empty", 1), ("truncated", "ok", 1)]
    (same,) = ask(run, "compared_lengths", other=other, by="prompt")
    assert same["prompts"] == 1  # "2+2?" is the only prompt of the one, and one of two of the other


@pytest.mark.parametrize("question", [q for q in QUESTIONS if not q.compares], ids=lambda q: q.name)
def test_a_question_is_answered_on_an_empty_run_and_on_one_row(question: Question, tmp_path: Path) -> None:
    run = make_run(tmp_path)
    values = defaults(question)
    assert len(ask(run, question.name, **values)) == (2 if "budgets" in question.sql else 0)
    add_open(run, [answer(0, 0, 10, 7)])
    assert isinstance(ask(run, question.name, **values), list)
    seal(run, "alpha", 1)
    assert isinstance(ask(run, question.name, **values), list)


@pytest.mark.parametrize("by", ["id", "prompt"])
def test_two_runs_may_be_empty_or_the_same(by: str, run: RunDir, tmp_path: Path) -> None:
    empty = make_run(tmp_path / "empty")
    for name in ("compared_lengths", "compared_outcomes"):
        assert ask(run, name, other=empty, by=by) == []
        assert ask(empty, name, other=run, by=by) == []
        assert ask(run, name, other=run, by=by)


def test_questions_are_answered_while_shards_are_sealed(tmp_path: Path) -> None:
    run = make_run(tmp_path)
    stop, failures = threading.Event(), []

    def write() -> None:
        for number in range(1, 40):
            add_open(run, [answer(10 * number + i, number, 1, 5) for i in range(5)])
            seal(run, "alpha", number)
            if stop.is_set():
                return

    writer = threading.Thread(target=write)
    writer.start()
    seen = 0
    for question in QUESTIONS:
        if not question.compares:
            try:
                ask(run, question.name, **defaults(question))
            except Exception as error:  # noqa: BLE001  # all of them are told at the end
                failures.append((question.name, error))
        samples = sum(row["samples"] for row in ask(run, "outcomes", dataset=None))
        assert samples >= seen  # never fewer than before
        seen = samples
    stop.set()
    writer.join(30)
    assert failures == []


def test_each_question_of_the_catalogue_names_the_parameters_of_its_query() -> None:
    import re

    for question in QUESTIONS:
        asked = set(re.findall(r"\$(\w+)", question.sql)) | ({"by"} if question.compares else set())
        assert asked == {p.name for p in question.parameters if p.kind is not Kind.RUN}, question.name


def test_every_query_is_in_the_catalogue_or_belongs_to_a_part_of_a_page() -> None:
    of_pages = {"dataset_totals", "errors", "length_histogram", "length_quantiles", "pace"}
    of_pages |= {
        "recent_hashes",
        "recent_outcomes",
        "found_samples",
        "flagged_samples",
        "length_bins",
        "search_texts",
        "sources",
        "time_range",
    }
    assert {path.stem for path in QUERIES.glob("*.sql")} - of_pages == {question.name for question in QUESTIONS}
