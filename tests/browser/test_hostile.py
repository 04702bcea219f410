"""What models, servers, files and events say runs no script and fetches nothing, in a real browser."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from tests.browser.dashboard_process import PAGES, Dashboard
from tests.browser.tab import NARROW, Tab
from tests.pages.hostile import FOLDER_NAME, MARK, make_hostile_run


@pytest.fixture(scope="module")
def hostile(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Dashboard]:
    """A dashboard on a run of which everything is hostile."""
    place = tmp_path_factory.mktemp("hostile")
    make_hostile_run(place)
    dashboard = Dashboard(place / "runs", place / "dashboard.log")
    dashboard.start()
    yield dashboard
    dashboard.kill()


@pytest.mark.parametrize(
    ("run", "size"),
    [("hostile", (1440, 2400)), ("hostile", NARROW), (FOLDER_NAME, NARROW)],
    ids=["wide", "narrow", "in the run's name"],
)
def test_hostile_words_stay_words(run: str, size: tuple[int, int], hostile: Dashboard, new_tab: Callable[..., Tab]) -> None:
    tab = new_tab(size=size)
    asked: set[str] = set()
    tab.page.on("request", lambda request: asked.add(urlsplit(request.url).netloc))
    tab.page.add_init_script(_NOTICE)
    seen = 0
    for page in PAGES:
        tab.open(hostile.url(page, run=run))
        tab.page.wait_for_timeout(1_000)
        assert tab.page.evaluate("window.EVIL === undefined && !window.noticed"), page
        assert tab.page.locator(_STRANGE).count() == 0, page
        assert "Traceback" not in tab.text(), page
        assert tab.overflow_px() <= 0, page
        seen += tab.text().count(MARK)
    assert seen > (10 if run == "hostile" else 0)  # the words are there to be read
    assert {host for host in asked if host} == {f"127.0.0.1:{hostile.port}"}


def test_a_hostile_sample_is_read_as_plain_text(hostile: Dashboard, new_tab: Callable[..., Tab], tmp_path: Path) -> None:
    tab = new_tab(size=(1440, 3000))
    asked: set[str] = set()
    tab.page.on("request", lambda request: asked.add(urlsplit(request.url).netloc))
    tab.open(hostile.url("datasets", run="hostile"))
    tab.expect_text("Recent samples")
    for _ in range(12):
        assert tab.page.locator(_STRANGE).count() == 0
        older = tab.button("Older")
        if not older.is_enabled():
            break
        older.click()
        tab.settle()
    assert {host for host in asked if host} == {f"127.0.0.1:{hostile.port}"}


_NOTICE = "window.alert = window.confirm = window.prompt = () => { window.noticed = true }"
_STRANGE = "iframe, object, embed, img[src^=http], img[src=x], [onerror], [onload], [onclick], a[href^='javascript:'], svg use"
