"""The Data page in Chromium: an endless statement is cancelled, words are searched, a sample is flagged."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.browser.dashboard_process import Dashboard
from tests.browser.tab import Tab
from tests.finished_samples import add_open, sample, seal
from tests.made_run import make_run

ONLY_ONE = re.compile("^1 of 1$")
ENDLESS = "SELECT sum(sqrt(range)) FROM range(1000000000000)"  # streams: it takes time and no memory


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Dashboard]:
    """A dashboard on a run of twelve sealed and three open samples."""
    place: Path = tmp_path_factory.mktemp("data")
    run = make_run(place)
    add_open(run, [sample(i) for i in range(12)])
    seal(run, "alpha", 1)
    add_open(run, [sample(i, dataset="beta") for i in range(3)])
    dashboard = Dashboard(place / "runs", place / "dashboard.log")
    dashboard.start()
    yield dashboard
    dashboard.kill()


def test_an_endless_statement_is_cancelled_and_the_next_one_answered(data: Dashboard, new_tab: Callable[..., Tab]) -> None:
    tab = new_tab().open(f"{data.url('data', run='demo')}&part=SQL")
    statement = tab.page.get_by_label("Statement")
    statement.fill(ENDLESS)
    statement.press("Control+Enter")
    tab.settle()
    tab.button("Run").click()
    tab.expect_text("it is ended after 30 s")
    tab.button("Cancel").click()
    tab.expect_text("Cancelled.")
    statement.fill("FROM samples SELECT dataset, count(*) GROUP BY ALL")
    statement.press("Control+Enter")
    tab.settle()
    tab.button("Run").click()
    tab.expect_text("2 rows.")
    assert not tab.errors


def test_words_are_found_and_a_flag_is_there_in_another_tab(data: Dashboard, new_tab: Callable[..., Tab]) -> None:
    tab = new_tab().open(f"{data.url('data', run='demo')}&part=Samples")
    words = tab.page.get_by_label("Words in prompt, answer or error")
    words.fill("four 11")
    words.press("Enter")
    tab.expect_text(ONLY_ONE)
    tab.button("Flag…").click()
    tab.page.get_by_label("Note").fill("<b>odd</b>")
    tab.button("Flag it").click()
    tab.expect_text("<b>odd</b>")
    other = new_tab().open(f"{data.url('data', run='demo')}&part=Samples")
    other.page.get_by_text("Flagged", exact=True).click()
    other.expect_text("<b>odd</b>")
    other.expect_text(ONLY_ONE)
    assert not tab.errors + other.errors
