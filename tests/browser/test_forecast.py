"""The Forecast page in a browser: a run at work gets its range, a what-if moves it, and Apply makes it so."""

from __future__ import annotations

import time
from collections.abc import Callable

from playwright.sync_api import expect

from backend.report.ending import EndKind
from backend.report.forecast import forecast_view
from tests.browser.dashboard_process import Dashboard
from tests.browser.tab import NARROW, PATIENCE_MS, Tab
from tests.browser.test_steering import start_running, until
from tests.runs.live_run import LiveRun

NewRun = Callable[..., LiveRun]
NewTab = Callable[..., Tab]


def test_a_what_if_moves_the_range_and_apply_makes_it_so(dashboard: Dashboard, new_run: NewRun, new_tab: NewTab) -> None:
    run, tab = new_run("forecast"), new_tab()
    start_running(run)
    until(lambda: forecast_view(run.run, time.time()).ending.kind is EndKind.GOING, "no forecast was made", 60)
    phone = new_tab(size=NARROW, dark=True)
    phone.open(dashboard.url("forecast", run="forecast"))
    phone.expect_text("What this assumes")
    assert phone.overflow_px() <= 0

    tab.open(dashboard.url("forecast", run="forecast"))
    tab.expect_text("Done ")
    tab.expect_text("Finished tokens and where they are going")
    field = tab.page.get_by_label("Samples at most")
    field.fill("700")
    field.press("Enter")
    tab.expect_text("With these changes")
    tab.expect_text("sooner")
    assert run.dataset("B1").max_samples is None

    tab.page.locator(".st-key-apply-form button").filter(visible=True).first.click()
    dialog = tab.page.get_by_role("dialog")
    expect(dialog).to_contain_text("B1: at most 700 samples", timeout=PATIENCE_MS)
    dialog.get_by_role("button", name="Apply").click()
    for name in ("B1", "B2"):
        run.wait_dataset(name, lambda d: d.max_samples == 700)
