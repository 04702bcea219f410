"""A run is started, watched, steered and brought back from a browser's tab."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

from playwright.sync_api import expect

from backend.heartbeat import lock_is_held
from backend.records import DatasetState
from backend.run_dir import open_state
from tests.browser.dashboard_process import Dashboard
from tests.browser.tab import PATIENCE_MS, START_PATIENCE_MS, Tab
from tests.runs.live_run import LiveRun

NewRun = Callable[..., LiveRun]
NewTab = Callable[..., Tab]


def until(seen: Callable[[], object], what: str, timeout_s: float = 30.0) -> None:
    """Polls something that no page shows."""
    deadline = time.monotonic() + timeout_s
    while not seen():
        assert time.monotonic() < deadline, what
        time.sleep(0.1)


def start_running(run: LiveRun) -> None:
    run.start()
    run.wait_dataset("B1", lambda d: d.state is DatasetState.RUNNING and d.finished_samples > 0)


def test_a_run_is_started_from_the_page_and_its_figures_move(dashboard: Dashboard, new_run: NewRun, new_tab: NewTab) -> None:
    run, tab = new_run("started"), new_tab()
    tab.open(dashboard.url(run="started"))
    tab.expect_text("simulated")
    tab.button("Start").first.click()
    expect(tab.row("B1")).to_contain_text("running", timeout=START_PATIENCE_MS)
    until(lambda: tab.figure("Tokens/s") not in ("", "–"), "no tokens/s")
    speeds, samples = {tab.figure("Tokens/s")}, {tab.figure("Samples")}
    until(lambda: len(speeds | {tab.figure("Tokens/s")}) > 1, "tokens/s stand still")
    until(lambda: len(samples | {tab.figure("Samples")}) > 1, "samples stand still")
    assert lock_is_held(run.run)


def test_a_dataset_is_paused_resumed_killed_after_a_question_and_revived(
    dashboard: Dashboard, new_run: NewRun, new_tab: NewTab
) -> None:
    run, tab = new_run("steered"), new_tab()
    start_running(run)
    tab.open(dashboard.url(run="steered"))
    row = tab.row("B1")
    row.get_by_role("button", name="Pause").click()
    run.wait_dataset("B1", lambda d: d.state is DatasetState.PAUSED)
    expect(row).to_contain_text("paused", timeout=PATIENCE_MS)
    row.get_by_role("button", name="Resume").click()
    run.wait_dataset("B1", lambda d: d.state in (DatasetState.RUNNING, DatasetState.WAITING))
    expect(row.get_by_role("button", name="Pause")).to_be_visible(timeout=PATIENCE_MS)

    row.get_by_role("button", name="Kill").click()
    dialog = tab.page.get_by_role("dialog")
    expect(dialog).to_contain_text("stay")
    dialog.get_by_role("button", name="Cancel").click()
    expect(dialog).to_be_hidden()
    assert run.dataset("B1").state is not DatasetState.KILLED
    row.get_by_role("button", name="Kill").click()
    dialog.get_by_role("button", name="Kill B1").click()
    run.wait_dataset("B1", lambda d: d.state is DatasetState.KILLED)
    stayed = run.dataset("B1").finished_samples
    row.get_by_role("button", name="Revive").click()
    run.wait_dataset("B1", lambda d: d.state in (DatasetState.RUNNING, DatasetState.WAITING))
    assert run.dataset("B1").finished_samples >= stayed > 0


def test_a_killed_supervisor_is_told_within_seconds_and_restarted_from_the_page(
    dashboard: Dashboard, new_run: NewRun, new_tab: NewTab
) -> None:
    run, tab = new_run("struck"), new_tab()
    start_running(run)
    tab.open(dashboard.url(run="struck"))
    expect(tab.row("B1")).to_contain_text("running", timeout=PATIENCE_MS)
    before = run.dataset("B1").finished_samples
    run.kill_supervisor()
    tab.page.locator(".hw-banner").filter(has_text="dead").wait_for(timeout=6_000)
    tab.button("Restart").first.click()
    until(lambda: lock_is_held(run.run), "no supervisor came back")
    expect(tab.page.locator(".hw-banner").filter(has_text="dead")).to_be_hidden(timeout=PATIENCE_MS)
    run.wait_dataset("B1", lambda d: d.finished_samples > before)


def test_a_reload_keeps_everything_and_two_tabs_agree(dashboard: Dashboard, new_run: NewRun, new_tab: NewTab) -> None:
    run, first, second = new_run("shared"), new_tab(), new_tab()
    start_running(run)
    first.open(dashboard.url(run="shared"))
    second.open(dashboard.url(run="shared"))
    first.row("B2").get_by_role("button", name="Pause").click()
    for tab in (first, second):
        expect(tab.row("B2")).to_contain_text("paused", timeout=PATIENCE_MS)
    first.page.reload()
    first.settle()
    expect(first.row("B2")).to_contain_text("paused", timeout=PATIENCE_MS)
    assert "run=shared" in first.page.url
    expect(first.row("B2").get_by_role("button", name="Resume")).to_be_visible()
    run.pause("B1", now=True)  # nothing finishes any more: what both show must become equal
    for tab in (first, second):
        expect(tab.row("B1")).to_contain_text("paused", timeout=PATIENCE_MS)
    until(lambda: first.figure("Samples") == second.figure("Samples") != "–", "the tabs disagree")


def test_three_tabs_that_press_start_at_once_start_one_supervisor(
    dashboard: Dashboard, new_run: NewRun, new_tab: NewTab
) -> None:
    run = new_run("thrice")
    tabs = [new_tab() for _ in range(3)]
    for tab in tabs:
        tab.open(dashboard.url(run="thrice"))
        expect(tab.button("Start").first).to_be_enabled()
    buttons = [tab.button("Start").first.element_handle() for tab in tabs]
    for button in buttons:  # a locator would wait for a button that the first press has taken away
        button.evaluate("button => button.click()")
    for tab in tabs:
        expect(tab.row("B1")).to_contain_text("running", timeout=START_PATIENCE_MS)
    with open_state(run.run, read_only=True) as con:
        lives = con.execute("SELECT count(*) FROM events WHERE kind = 'run.started'").fetchone()[0]
        (wishes,) = con.execute("SELECT count(*) FROM intents WHERE subject = 'run'").fetchone()
    assert lives == 1
    assert wishes == 1


def test_the_job_goes_on_while_the_dashboard_is_killed(
    new_run: NewRun, new_tab: NewTab, dashboard: Dashboard, tmp_path: Path
) -> None:
    run, tab = new_run("outlives"), new_tab()
    other = Dashboard(dashboard.runs, tmp_path / "other.log")
    other.start()
    try:
        tab.open(other.url(run="outlives"))
        tab.button("Start").first.click()
        run.wait_dataset("B1", lambda d: d.finished_samples > 0)
        other.kill()
        before = run.dataset("B1").finished_samples
        run.wait_dataset("B1", lambda d: d.finished_samples > before)
        tab.expect_text("The dashboard does not answer")
        other.start()
        tab.open(other.url(run="outlives"))
        expect(tab.row("B1")).to_contain_text("running", timeout=PATIENCE_MS)
    finally:
        other.kill()
