"""An API is measured, compared, switched to and left again, all from the page Compare."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

from playwright.sync_api import Locator, expect

from backend.probes import read_probes
from backend.simulator.launch import run_simulator
from tests.browser.dashboard_process import Dashboard
from tests.browser.tab import NARROW, PATIENCE_MS, Tab
from tests.runs.live_run import LiveRun

NewRun = Callable[..., LiveRun]
NewTab = Callable[..., Tab]
PROBE_S = 60.0
API_FLAGS = ("--profile", "api", "--speed", "3", "--mean", "300", "--chunk-tokens", "25", "--no-children")
PRICED = ("--served-model-name", "sim/model", "--prices", "0.5,2.0")


def press_in_dialog(tab: Tab, name: str) -> Locator:
    """Presses what a dialog asks for, and returns the dialog."""
    dialog = tab.page.get_by_role("dialog")
    dialog.get_by_role("button", name=name, exact=True).click()
    expect(dialog).to_be_hidden(timeout=PATIENCE_MS)
    return dialog


def test_probe_compare_switch_and_back(dashboard: Dashboard, new_run: NewRun, new_tab: NewTab, tmp_path: Path) -> None:
    with run_simulator(*API_FLAGS, *PRICED, directory=tmp_path, name="api") as server:
        prices = {"input_usd_per_mtok": 0.5, "output_usd_per_mtok": 2.0}
        api = {"sim": {"base_url": f"{server.url}/v1", "model": "sim/model", "spend_cap_usd": 2.0, **prices}}
        run, tab = new_run("switched", api=api), new_tab()
        run.start()
        run.wait(lambda s: s.datasets[0].finished_samples > 20)
        tab.open(dashboard.url("compare", run="switched"))
        tab.expect_text("Every dataset goes to the engine.")

        tab.button("Measure sim…").click()
        dialog = tab.page.get_by_role("dialog")
        expect(dialog).to_contain_text("by the prices (run.toml)", timeout=PATIENCE_MS)
        expect(dialog).to_contain_text("Never more than $1.00")
        press_in_dialog(tab, "Measure sim")
        deadline = time.monotonic() + PROBE_S
        while "sim" not in read_probes(run.run):
            assert time.monotonic() < deadline, run.story()
            time.sleep(0.2)
        assert read_probes(run.run)["sim"].answered == 32

        tab.open(dashboard.url("compare", run="switched"))  # what was measured is what it compares with
        tab.expect_text("measured")
        tab.button("Switch to sim…").click()
        expect(dialog).to_contain_text("It never costs more than $2.00 altogether", timeout=PATIENCE_MS)
        press_in_dialog(tab, "Switch to sim")
        tab.expect_text("B1 goes to sim. B2 goes to sim.")
        run.wait(lambda s: s.apis[0].in_flight > 0 and {d.route for d in s.datasets} == {"sim"})
        run.wait(lambda s: s.replicas[0].in_flight == 0, what="what is at the engine finishes there")

        overview = new_tab().open(dashboard.url(run="switched"))
        overview.expect_text("API spend")
        assert overview.figure("API spend").startswith("$")

        tab.button("Back to local").click()
        tab.expect_text("Every dataset goes to the engine.")
        run.wait(lambda s: s.replicas[0].in_flight > 0 and s.apis[0].in_flight == 0)
        assert {d.route for d in run.status().datasets} == {"local"}


def test_the_part_fits_a_narrow_screen(dashboard: Dashboard, new_run: NewRun, new_tab: NewTab) -> None:
    api = {"a-name-that-is-rather-long": {"base_url": "http://127.0.0.1:9/v1", "model": "m"}}
    run, tab = new_run("narrow-api", api=api), new_tab(size=NARROW)
    run.start()
    run.wait(lambda s: s.apis != ())
    tab.open(dashboard.url("compare", run="narrow-api"))
    tab.expect_text("Measure and switch")
    assert tab.overflow_px() <= 0
