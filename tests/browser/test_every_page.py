"""Every page, wide and narrow, light and dark: drawn whole, nothing sideways, nobody's traceback."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from tests.browser.dashboard_process import PAGES, Dashboard
from tests.browser.runs import make_browser_run
from tests.browser.tab import NARROW, WIDE, Tab
from tests.runs.live_run import LiveRun

LOOKS = {"wide and light": {"size": WIDE}, "narrow and dark": {"size": NARROW, "dark": True}}
DARK_BACKGROUND = "rgb(16, 18, 21)"


@pytest.fixture(scope="module")
def running(dashboard: Dashboard) -> Iterator[LiveRun]:
    """A run at work that has finished samples."""
    run = make_browser_run(dashboard.runs, "looked-at")
    run.start()
    run.wait_dataset("B1", lambda d: d.finished_samples > 20)
    yield run
    run.cleanup()


@pytest.mark.usefixtures("running")
@pytest.mark.parametrize("look", LOOKS)
def test_every_page_is_whole(look: str, dashboard: Dashboard, new_tab: Callable[..., Tab]) -> None:
    tab = new_tab(**LOOKS[look])
    for page in PAGES:
        tab.open(dashboard.url(page, run="looked-at"))
        tab.page.wait_for_timeout(1_000)  # live parts and charts draw after the script has run
        text = tab.text()
        assert "Traceback" not in text, page
        assert tab.page.locator("[data-testid=stException], [data-testid=stAlertContentError]").count() == 0, page
        assert tab.overflow_px() <= 0, page
        assert len(text) > 100, page
        if LOOKS[look].get("dark"):
            assert tab.background() == DARK_BACKGROUND, page
        if LOOKS[look]["size"] is WIDE:
            assert "simulated" in text, page


@pytest.mark.usefixtures("running")
def test_every_button_has_a_name(dashboard: Dashboard, new_tab: Callable[..., Tab]) -> None:
    tab = new_tab()
    for page in PAGES:
        tab.open(dashboard.url(page, run="looked-at"))
        nameless = [
            button.evaluate("each => each.outerHTML")
            for button in tab.page.get_by_role("button").all()
            if not button.evaluate(_NAME)
        ]
        assert nameless == [], page


@pytest.mark.usefixtures("running")
def test_title_and_icon_of_the_tab_carry_the_state(dashboard: Dashboard, new_tab: Callable[..., Tab]) -> None:
    tab = new_tab()
    tab.open(dashboard.url(run="looked-at"))
    tab.page.wait_for_function("document.title.includes('looked-at')")
    tab.page.wait_for_function("document.title.includes('▶')")
    tab.page.wait_for_function("document.querySelector('link[rel~=icon]').href.startsWith('data:image/svg')")


_NAME = "each => each.ariaLabel || each.textContent.trim() || each.title || each.getAttribute('aria-labelledby')"
