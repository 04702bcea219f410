"""One Chromium and one dashboard for all tests of this folder; every test has tabs and runs of its own."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser

from tests.browser.dashboard_process import Dashboard
from tests.browser.runs import make_browser_run
from tests.browser.tab import CHROMIUM, Tab, chromium
from tests.runs.live_run import LiveRun


@pytest.hookimpl(tryfirst=True)  # before pytest chooses by marks
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """All of them need a browser, and time."""
    here = Path(__file__).parent
    for item in items:
        if here in item.path.parents:
            item.add_marker(pytest.mark.browser)
            item.add_marker(pytest.mark.timeout(180))
            if not CHROMIUM.exists():
                item.add_marker(pytest.mark.skip(reason=f"there is no {CHROMIUM}: apt-get install chromium"))


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    with chromium() as opened:
        yield opened


@pytest.fixture(scope="session")
def dashboard(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Dashboard]:
    """Serves the folder of runs that `new_run` fills."""
    place = tmp_path_factory.mktemp("dashboard")
    served = Dashboard(place / "runs", place / "dashboard.log")
    served.start()
    yield served
    served.kill()


@pytest.fixture
def new_run(dashboard: Dashboard) -> Iterator[Callable[..., LiveRun]]:
    """Makes runs; what they started is gone afterwards, whatever the test did."""
    made: list[LiveRun] = []

    def make(name: str, **changes: Any) -> LiveRun:
        made.append(make_browser_run(dashboard.runs, name, **changes))
        return made[-1]

    yield make
    for run in made:
        run.cleanup()


@pytest.fixture
def new_tab(browser: Browser) -> Iterator[Callable[..., Tab]]:
    """Opens tabs. Scripts that failed and dialogs that opened in one fail its test."""
    opened: list[Tab] = []

    def make(**looks: Any) -> Tab:
        opened.append(Tab(browser, **looks))
        return opened[-1]

    yield make
    wrong = [(tab.errors, tab.dialogs) for tab in opened if tab.errors or tab.dialogs]
    for tab in opened:
        tab.close()
    assert not wrong
