"""What stands in queries/: one question a file, said in its first line, and the outcome rule as the code has it."""

from __future__ import annotations

from itertools import product
from pathlib import Path

import pytest

from backend.outcomes import EMPTY_BELOW_TOKENS, LOOP_MIN_SHARE, outcome
from backend.report.connection import QUERIES, connect, query_text
from backend.report.database import run_query
from backend.run_dir import RunDir
from tests.finished_samples import add_open, sample, seal
from tests.made_run import make_run

PARAMETERS = {
    "dataset_totals": {"dataset": "alpha"},
    "errors": {"dataset": "alpha", "limit": 5},
    "finish_reasons": {"dataset": "alpha"},
    "length_histogram": {"dataset": "alpha", "per_octave": 4},
    "length_quantiles": {"dataset": "alpha"},
    "outcomes": {"dataset": "alpha"},
    "pace": {"dataset": "alpha", "step_s": 60},
    "found_samples": {"dataset": "alpha", "limit": 5, "outcome": None, "source": None, "order": "newest"},
    "sources": {"dataset": "alpha"},
    "recent_hashes": {"dataset": "alpha", "limit": 5},
    "recent_outcomes": {"dataset": "alpha", "limit": 5},
}


@pytest.mark.parametrize("path", sorted(QUERIES.rglob("*.sql")), ids=lambda path: path.stem)
def test_the_first_line_says_what_is_asked(path: Path) -> None:
    first = path.read_text().splitlines()[0]
    assert first.startswith("-- ")
    assert first.endswith((".", ":", "?")), first


@pytest.mark.parametrize("name", sorted(PARAMETERS))
def test_every_question_is_answered_without_samples_and_with_some(name: str, tmp_path: Path) -> None:
    run = make_run(tmp_path)
    without = run_query(run, name, **PARAMETERS[name])
    add_open(run, [sample(0), sample(1, finish_reason="rejected", error="HTTP 400: 12 > 10", completion_tokens=0)])
    seal(run, "alpha", 1)
    add_open(run, [sample(2)])
    some = run_query(run, name, **PARAMETERS[name])
    assert some
    assert some != without


def test_the_outcome_rule_in_sql_is_the_one_in_python(tmp_path: Path) -> None:
    con = connect(RunDir(tmp_path))
    con.execute(query_text("setup/outcome"))
    reasons = ("stop", "length", "tool_calls", "rejected", "abort")
    tokens = (None, 0, EMPTY_BELOW_TOKENS - 1, EMPTY_BELOW_TOKENS, EMPTY_BELOW_TOKENS + 1, 500)
    shares = (None, 0.0, LOOP_MIN_SHARE - 1e-9, LOOP_MIN_SHARE, 1.0)
    cases = list(product(reasons, tokens, (None, False, True), (None, 1, 60), shares, (False, True)))
    names = ("finish_reason", "answer_tokens", "reasoning_closed", "repeat_period", "repeat_share", "has_tool_calls")
    con.execute("CREATE TABLE cases (a VARCHAR, b INT, c BOOL, d INT, e DOUBLE, f BOOL)")
    con.executemany("INSERT INTO cases VALUES ($1, $2, $3, $4, $5, $6)", cases)
    for *case, said in con.execute("SELECT *, outcome(a, b, c, d, e, f) FROM cases").fetchall():
        assert said == outcome(**dict(zip(names, case, strict=True))).value, case


def test_outcomes_of_stored_rows_are_those_of_the_code(tmp_path: Path) -> None:
    from backend.outcomes import outcome_of
    from backend.records import Facts

    run = make_run(tmp_path)
    facts = [Facts(answer_tokens=0), Facts(4, False), Facts(4, True), Facts(repeat_period=3), Facts(9, None, 3, 0.1), Facts()]
    rows = [
        sample(i, facts=f, finish_reason=reason, tool_calls=calls)
        for i, (f, reason, calls) in enumerate(product(facts, ("stop", "length", "rejected"), (None, "", '[{"id":"1"}]')))
    ]
    expected = {row.position: outcome_of(row).value for row in rows}
    add_open(run, rows[:20])
    seal(run, "alpha", 1)
    add_open(run, rows[20:])
    found = run_query(run, "found_samples", dataset=None, limit=100, outcome=None, source=None, order="newest")
    assert {row["position"]: row["outcome"] for row in found} == expected
