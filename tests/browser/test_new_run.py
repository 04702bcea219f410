"""A run is made and started with the form, without a terminal."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from playwright.sync_api import expect

from backend.run_dir import RunDir
from tests.browser.dashboard_process import Dashboard
from tests.browser.tab import START_PATIENCE_MS, Tab
from tests.runs.live_run import LiveRun, write_prompts


@pytest.fixture
def made(dashboard: Dashboard) -> Iterator[LiveRun]:
    """The run that the test makes."""
    run = LiveRun(RunDir(dashboard.runs / "by-form"))
    yield run
    run.cleanup()


def test_a_run_is_made_and_started_with_the_form(dashboard: Dashboard, made: LiveRun, new_tab: Callable[..., Tab]) -> None:
    prompts = dashboard.runs.parent / "by form.jsonl"
    write_prompts(prompts, 500)
    tab = new_tab().open(dashboard.url("new-run"))
    page = tab.page
    page.get_by_role("combobox", name="Engine").first.click()
    page.get_by_role("option", name="A simulated box, no GPU").click()
    tab.settle()
    for label, text in (
        ("Name of the run", "by-form"),
        ("Model", "simulated/model"),
        ("Name", "B1"),
        ("Prompt files", str(prompts)),
    ):
        field = page.get_by_role("textbox", name=label, exact=True)
        field.fill(text)
        field.press("Enter")
        tab.settle()
    expect(page.get_by_text("500 prompts").first).to_be_visible()
    tab.button("Create and start").click()
    expect(tab.row("B1")).to_contain_text("running", timeout=START_PATIENCE_MS)
    made.wait_dataset("B1", lambda dataset: dataset.finished_samples > 0)
