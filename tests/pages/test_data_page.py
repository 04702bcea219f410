"""The Data page: charts, finding and flagging samples, questions, and SQL."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest
from streamlit.testing.v1 import AppTest

from backend.records import Facts
from backend.report.questions import QUESTIONS
from backend.run_dir import open_state
from tests.finished_samples import add_open, sample, seal
from tests.made_run import make_run
from tests.pages.shown import open_page, words
from tests.pages.states import run_in


def until(at: AppTest, so: Callable[[str], bool]) -> str:
    """What the page shows once it is `so`: a long question is looked for again and again, as the fragment does."""
    deadline = time.monotonic() + 60
    while not so(shown := words(at)):
        assert time.monotonic() < deadline, shown
        at.run()
    assert not at.exception
    return shown


def test_charts_show_lengths_outcomes_and_drift(runs: Path) -> None:
    with run_in("running", runs) as run:
        now = time.time()
        add_open(run, [sample(30 + i, started_at=now - 9000, finished_at=now - 8000 + 60 * i) for i in range(5)])
        at = open_page("data.py", run="demo")
        shown = words(at)
        assert "Lengths by dataset" in shown
        assert "Outcomes over time" in shown
        assert "Do lengths drift?" in shown
        at.selectbox("data_dataset").select("beta").run()
        assert "No sample is finished yet" in words(at)


def test_a_broken_shard_is_said_on_every_part(runs: Path) -> None:
    with run_in("running", runs) as run:
        run.shard("alpha", 1).write_bytes(b"PAR1")
        (run.shards / "alpha" / "junk.parquet").write_text("junk")
        for part in ("Charts", "Samples", "Questions", "SQL"):
            at = open_page("data.py", run="demo", part=part)
            assert not at.exception
            assert "shards/alpha/00000001.parquet was cut short" in words(at)


def test_samples_are_found_by_outcome_and_order_and_stepped_through(runs: Path) -> None:
    with run_in("running", runs) as run:
        add_open(run, [sample(50, completion_tokens=900, facts=Facts(answer_tokens=0)), sample(51, completion_tokens=5)])
        at = open_page("data.py", run="demo", part="Samples")
        assert "1 of 23" in words(at)
        at.selectbox("find_order").select("longest").run()
        assert "four 50" in words(at)
        at.button("data-sample-next").click().run()
        assert "four 51" in words(at)
        at.button("data-sample-previous").click().run()
        assert "four 50" in words(at)
        at.selectbox("find_outcome").select("empty").run()
        assert "1 of 1" in words(at)
        at.selectbox("find_outcome").select("degenerate").run()
        assert "No finished sample is so." in words(at)


def test_tokens_of_each_part_and_ids_are_shown(runs: Path) -> None:
    run = make_run(runs)
    row = sample(0, reasoning="hm", answer="yes", reasoning_tokens=2, facts=Facts(answer_tokens=2, reasoning_closed=True))
    add_open(run, [row])
    at = open_page("data.py", run="demo", part="Samples")
    shown = words(at)
    assert "Reasoning, 2 tokens" in shown
    assert "Answer, 2 tokens" in shown
    assert "5 6 7 8" not in shown
    at.toggle("data_ids").set_value(True).run()
    assert "Output token ids, 4" in words(at)
    assert "5 6 7 8" in words(at)


def test_words_are_searched_in_the_texts(runs: Path) -> None:
    run = make_run(runs)
    add_open(run, [sample(i) for i in range(12)])
    seal(run, "alpha", 1)
    at = open_page("data.py", run="demo", part="Samples")
    at.text_input("find_text").set_value("FOUR 1").run()
    until(at, lambda shown: "1 of 3" in shown)  # 1, 10 and 11
    at.text_input("find_text").set_value("nowhere").run()
    until(at, lambda shown: "No finished sample is so." in shown)


def test_flags_are_kept_and_found_again(runs: Path) -> None:
    run = make_run(runs)
    add_open(run, [sample(i) for i in range(3)])
    at = open_page("data.py", run="demo", part="Samples")
    at.button("data-sample-next").click().run()
    at.button("flag").click().run()
    at.text_area("flag_note").set_value("  looks odd ")
    at.button("dialog-agree").click().run()
    assert "looks odd" in words(at)
    with closing(open_state(run)) as con:
        flags = [tuple(row) for row in con.execute("SELECT dataset, sample_id, turn, attempt, note FROM flags")]
    assert flags == [("alpha", "s000001", 0, 1, "looks odd")]
    seal(run, "alpha", 1)
    again = open_page("data.py", run="demo", part="Samples")  # another tab, later
    again.toggle("find_flagged").set_value(True).run()
    assert "1 of 1" in words(again)
    assert "looks odd" in words(again)
    again.button("flag-remove").click().run()
    with closing(open_state(run)) as con:
        assert con.execute("SELECT count(*) FROM flags").fetchone()[0] == 0


@pytest.mark.parametrize("question", [q for q in QUESTIONS if not q.long], ids=lambda q: q.name)
def test_every_quick_question_is_answered_at_once_with_its_sql(question: object, runs: Path) -> None:
    with run_in("running", runs):
        at = open_page("data.py", run="demo", part="Questions")
        at.selectbox("question").select(question.name).run()  # type: ignore[attr-defined]
        assert not at.exception
        shown = words(at)
        assert question.asks in shown  # type: ignore[attr-defined]
        assert question.sql.splitlines()[1] in shown  # type: ignore[attr-defined]
        assert "row" in shown.lower()


def test_a_long_question_waits_for_a_press(runs: Path) -> None:
    run = make_run(runs)
    add_open(run, [sample(i) for i in range(3)])
    at = open_page("data.py", run="demo", part="Questions")
    at.selectbox("question").select("duplicate_prompts").run()
    assert "press Ask" in words(at)
    at.button("question-ask").click().run()
    until(at, lambda shown: "1 row." in shown)
    at.selectbox("question").select("compared_lengths").run()
    assert "There is no other run to compare with." in words(at)


def test_sql_is_answered_or_refused_in_words(runs: Path) -> None:
    run = make_run(runs)
    add_open(run, [sample(i) for i in range(3)])
    at = open_page("data.py", run="demo", part="SQL")
    at.button("sql-run").click().run()
    until(at, lambda shown: "1 row." in shown)
    at.text_area("sql_text").set_value("COPY samples TO 'x.csv'").run()
    at.button("sql-run").click().run()
    assert "COPY is not run here: this box only reads." in words(at)
    at.text_area("sql_text").set_value("FROM read_csv('/etc/passwd')").run()
    at.button("sql-run").click().run()
    assert "The table function read_csv is not run here" in words(at)


def test_an_endless_statement_can_be_cancelled(runs: Path) -> None:
    make_run(runs)
    at = open_page("data.py", run="demo", part="SQL")
    endless = "SELECT count(*) FROM range(1000000000) AS a, range(1000000000) AS b WHERE hash(a.range, b.range) = 1"
    at.text_area("sql_text").set_value(endless).run()
    at.button("sql-run").click().run()
    until(at, lambda shown: "it is ended after 30 s" in shown)
    next(button for button in at.button if button.label == "Cancel").click().run()
    until(at, lambda shown: "Cancelled." in shown)
