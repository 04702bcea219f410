"""Handing samples over on a page."""

from __future__ import annotations

import time
from pathlib import Path

from backend.report.export.background import TaskState, exports_of
from tests.made_run import make_run
from tests.pages.shown import open_page, words
from tests.report.export.handed_over import read_rows, sample, seal


def test_a_press_exports_and_the_page_tells_what_became_of_it(runs: Path) -> None:
    run = make_run(runs)
    seal(run, [sample(number) for number in range(3)])
    at = open_page("datasets.py", run="demo")
    assert not at.exception
    at.selectbox("export_format").select("sharegpt").run()
    at.number_input("export_holdout").set_value(0).run()
    at.button("export-start").click().run()
    deadline = time.monotonic() + 60
    while exports_of(run)[0].state is TaskState.RUNNING:
        assert time.monotonic() < deadline
        time.sleep(0.02)
    assert "Done. 3 samples, 0 of them held out." in words(at.run())
    rows = read_rows(run.exports / "demo-sharegpt")
    assert [row["conversations"][1]["value"] for row in rows] == ["it is 0", "it is 1", "it is 2"]


def test_without_an_outcome_there_is_nothing_to_press(runs: Path) -> None:
    make_run(runs)
    at = open_page("datasets.py", run="demo")
    at.multiselect("export_outcomes").set_value([]).run()
    assert at.button("export-start").disabled
