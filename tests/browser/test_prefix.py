"""The dashboard below a path prefix, as JupyterHub and VS Code's port forwarding show it."""

from __future__ import annotations

from collections.abc import Callable

from playwright.sync_api import expect

from tests.browser.dashboard_process import Dashboard
from tests.browser.prefix_proxy import prefix_proxy
from tests.browser.tab import PATIENCE_MS, Tab
from tests.runs.live_run import LiveRun


def test_a_run_is_watched_and_steered_below_a_prefix(
    dashboard: Dashboard, new_run: Callable[..., LiveRun], new_tab: Callable[..., Tab]
) -> None:
    run, tab = new_run("prefixed"), new_tab()
    run.start()
    with prefix_proxy("/proxy/8501", dashboard.port) as root:
        elsewhere: list[str] = []
        tab.page.on("request", lambda request: elsewhere.append(request.url) if not request.url.startswith(root) else None)
        tab.open(f"{root}?run=prefixed")
        expect(tab.row("B1")).to_contain_text("running", timeout=PATIENCE_MS)
        tab.page.wait_for_function("document.querySelector('.hw-value')?.textContent.match(/[0-9]/)")
        tab.page.locator(".hw-charts svg.main-svg").first.wait_for()  # plotly.js was found as well
        tab.row("B2").get_by_role("button", name="Pause").click()
        expect(tab.row("B2")).to_contain_text("paused", timeout=PATIENCE_MS)
        tab.page.get_by_role("link", name="Events").click()
        tab.page.wait_for_url(f"{root}events**")
        tab.page.reload()
        tab.settle()
        tab.expect_text("is ready at")
        assert [url for url in elsewhere if not url.startswith(("data:", "blob:"))] == []
        tab.close()
