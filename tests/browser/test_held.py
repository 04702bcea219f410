"""A dataset of empty answers is held within a minute of the demo's speed; the page says why and lets it go on."""

from __future__ import annotations

import json
import time
from collections.abc import Callable

from playwright.sync_api import expect

from backend.records import DatasetState
from tests.browser.dashboard_process import Dashboard
from tests.browser.tab import NARROW, PATIENCE_MS, Tab
from tests.runs.live_run import LiveRun

DEMO_SPEED = 0.75
RULES = [{"match": "B2", "mean": 300, "empty_share": 0.87, "loop_share": 0.03}, {"match": "", "mean": 300}]


def test_a_dataset_of_empty_answers_is_held_and_goes_on_from_the_page(
    dashboard: Dashboard, new_run: Callable[..., LiveRun], new_tab: Callable[..., Tab]
) -> None:
    run, tab = new_run("held", speed=DEMO_SPEED, rules=json.dumps(RULES)), new_tab()
    run.start()
    run.wait(lambda status: status.in_flight > 0)
    began = time.monotonic()
    tab.open(dashboard.url(run="held"))
    run.wait_dataset("B2", lambda d: d.state is DatasetState.HELD)
    assert time.monotonic() - began < 60
    assert run.dataset("B1").state is not DatasetState.HELD

    row = tab.row("B2")
    expect(row).to_contain_text("held", timeout=PATIENCE_MS)
    expect(row).to_contain_text("are bad answers")
    expect(row.get_by_role("button", name="Kill")).to_be_visible()
    go_on = row.get_by_role("button", name="Go on")
    expect(go_on).to_be_visible()
    assert go_on.bounding_box()["height"] < 50  # type: ignore[index]

    tab.open(f"{dashboard.url('datasets', run='held')}&dataset=B2")
    expect(tab.page.get_by_text("The 3 worst samples")).to_be_visible(timeout=PATIENCE_MS)
    expect(tab.page.get_by_text("Answer: nothing").first).to_be_visible()
    expect(tab.page.get_by_text("is held again only above").or_(tab.page.get_by_text("is held no more")).first).to_be_visible()
    narrow = new_tab(size=NARROW, dark=True).open(f"{dashboard.url('datasets', run='held')}&dataset=B2")
    expect(narrow.page.get_by_text("The 3 worst samples")).to_be_visible(timeout=PATIENCE_MS)
    assert narrow.page.evaluate("document.documentElement.scrollWidth") <= NARROW[0]

    tab.button("Go on anyway").first.click()
    run.wait_dataset("B2", lambda d: d.state is not DatasetState.HELD)
    expect(tab.page.get_by_text("The 3 worst samples")).to_be_hidden(timeout=PATIENCE_MS)
    assert "goes on anyway" in run.words("dataset.goes_on")
