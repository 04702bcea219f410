"""The page of one dataset: stepping through datasets and samples, what it says of what cannot be read."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

from backend.run_dir import open_state
from tests.finished_samples import add_open, sample
from tests.pages.shown import open_page, words
from tests.pages.states import HELD_FOR, run_in


def test_next_and_previous_go_through_the_datasets_and_round(runs: Path) -> None:
    with run_in("running", runs):
        at = open_page("datasets.py", run="demo")
        assert at.selectbox("dataset_name").value == "alpha"
        at.button("dataset-next").click().run()
        assert at.selectbox("dataset_name").value == "beta"
        assert at.query_params["dataset"] in ("beta", ["beta"])
        at.button("dataset-next").click().run()
        assert at.selectbox("dataset_name").value == "alpha"
        at.button("dataset-previous").click().run()
        assert at.selectbox("dataset_name").value == "beta"


def test_the_address_names_the_dataset(runs: Path) -> None:
    with run_in("running", runs):
        assert open_page("datasets.py", run="demo", dataset="beta").selectbox("dataset_name").value == "beta"
        assert open_page("datasets.py", run="demo", dataset="none").selectbox("dataset_name").value == "alpha"


def test_lengths_are_said_to_be_short_while_many_are_in_flight(runs: Path) -> None:
    with run_in("running", runs):
        assert "early finishers are short" in words(open_page("datasets.py", run="demo"))


def test_lengths_of_a_finished_dataset_carry_no_warning(runs: Path) -> None:
    with run_in("finished", runs):
        shown = words(open_page("datasets.py", run="demo"))
    assert "Length of the finished answers" in shown
    assert "early finishers" not in shown


def test_a_shard_cut_short_is_named_and_the_rest_is_shown(runs: Path) -> None:
    with run_in("running", runs) as run:
        run.shard("alpha", 1).write_bytes(b"PAR1")
        shown = words(open_page("datasets.py", run="demo"))
    assert "shards/alpha/00000001.parquet was cut short" in shown
    assert "rejected" in shown  # the open row


def test_errors_stand_with_their_counts(runs: Path) -> None:
    with run_in("running", runs) as run:
        add_open(run, [sample(50 + i, finish_reason="rejected", error=f"HTTP 400: {i} tokens are too many") for i in range(3)])
        shown = words(open_page("datasets.py", run="demo"))
    assert "HTTP 400: 2 tokens are too many" in shown
    assert "HTTP 400: 1 tokens are too many" not in shown


def test_the_samples_that_are_read_stay_while_others_finish(runs: Path) -> None:
    with run_in("running", runs) as run:
        at = open_page("datasets.py", run="demo")
        at.button("sample-older").click().run()
        assert "four 19" in words(at)
        add_open(run, [sample(99, finished_at=9e9)])
        at.button("sample-newer").click().run()
        assert "2 of 21" not in words(at)
        assert "1 of 21" in words(at)
        at.button("samples-newest").click().run()
        assert "four 99" in words(at)


def test_samples_of_one_outcome_can_be_read(runs: Path) -> None:
    with run_in("running", runs):
        at = open_page("datasets.py", run="demo")
        at.selectbox("sample_outcome").select("rejected").run()
        assert "1 of 1" in words(at)
        assert "HTTP 400: no" in words(at)
        at.selectbox("sample_outcome").select("degenerate").run()
        assert "None yet." in words(at)


def test_a_press_writes_one_wish_and_is_shown_at_once(runs: Path) -> None:
    with run_in("running", runs) as run:
        at = open_page("datasets.py", run="demo")
        next(button for button in at.button if button.label == "Pause").click().run()
        assert not at.exception
        assert "pausing" in words(at)
        with closing(open_state(run)) as con:
            wishes = [tuple(row) for row in con.execute("SELECT subject, value FROM intents")]
    assert wishes == [("dataset:alpha", '{"want": "paused", "now": false}')]


def test_a_held_dataset_says_why_shows_its_worst_samples_and_what_going_on_means(runs: Path) -> None:
    with run_in("held", runs) as run:
        at = open_page("datasets.py", run="demo")
        assert not at.exception
        shown = words(at)
        assert HELD_FOR in shown
        assert "is held again only above 93.8 %" in shown
        assert "empty: 4 tokens, sample s000030" in shown
        assert "degenerate: 4 tokens, sample s000005" in shown
        assert "Answer: nothing" in shown
        assert "four 5" in shown
        assert {button.label for button in at.button} >= {"Go on anyway", "Kill"}
        next(button for button in at.button if button.label == "Go on anyway").click().run()
        with closing(open_state(run)) as con:
            wishes = [tuple(row) for row in con.execute("SELECT subject, value FROM intents")]
        assert wishes == [("dataset:alpha", '{"want": "running"}')]
        assert "resuming" in words(at)


def test_outcomes_stand_with_their_chances_and_their_definitions(runs: Path) -> None:
    with run_in("held", runs):
        shown = words(open_page("datasets.py", run="demo"))
    assert "8.7 % (2.4 % – 27 %)" in shown  # 2 of 23 are empty
    assert "What counts as what" in shown
    assert "A tool call is a whole answer." in shown
