"""The page that is shared stands alone: with the network cut it asks for nothing, complains of nothing, and can be read."""

from __future__ import annotations

import time
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest
from playwright.sync_api import Browser, Page

from backend.report.share.files import forms_of, write_forms
from backend.report.share.snapshot import take_snapshot
from backend.run_dir import RunDir
from tests.browser.tab import NARROW, WIDE
from tests.made_forecast import status_of, two_datasets, write_finished, write_forecast
from tests.made_run import beat, holding_lock, make_run
from tests.pages.hostile import FOLDER_NAME, make_hostile_run

DARK, LIGHT = "rgb(16, 18, 21)", "rgb(251, 251, 249)"


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """The page of a run with a forecast."""
    run, seen, now = make_run(tmp_path), two_datasets(), time.time()
    write_finished(run, seen, now)
    beat(run, status_of(seen), now)
    write_forecast(run, seen, now)
    with holding_lock(run, now):
        return write_forms(forms_of(take_snapshot(run, now, ZoneInfo("Europe/Berlin"))), tmp_path / "to").page


class Alone:
    """A tab without a network, which remembers what was asked for and complained of."""

    def __init__(self, browser: Browser, file: Path, *, size: tuple[int, int] = WIDE, dark: bool = False) -> None:
        viewport, scheme = {"width": size[0], "height": size[1]}, "dark" if dark else "light"
        self.context = browser.new_context(viewport=viewport, color_scheme=scheme, offline=True)
        self.page: Page = self.context.new_page()
        self.asked: list[str] = []
        self.said: list[str] = []
        self.page.on("request", lambda request: self.asked.append(request.url))
        self.page.on("console", lambda message: self.said.append(message.text))
        self.page.on("pageerror", lambda error: self.said.append(str(error)))
        self.page.goto(file.as_uri())
        self.page.wait_for_load_state("networkidle")

    def background(self) -> str:
        return str(self.page.evaluate("getComputedStyle(document.documentElement).backgroundColor"))


@pytest.mark.parametrize("dark", [False, True])
@pytest.mark.parametrize("size", [WIDE, NARROW])
def test_it_needs_no_network_and_fits(size: tuple[int, int], dark: bool, file: Path, browser: Browser) -> None:
    tab = Alone(browser, file, size=size, dark=dark)
    assert [url for url in tab.asked if not url.startswith("data:")] == [file.as_uri()]
    assert tab.said == []
    assert tab.page.locator("h1").inner_text().startswith("Done ")
    assert tab.page.evaluate("document.scrollingElement.scrollWidth - window.innerWidth") <= 0
    assert tab.background() == (DARK if dark else LIGHT)
    chart = tab.page.locator("svg").filter(visible=True)
    assert chart.count() == 1
    box = chart.bounding_box()
    assert box is not None
    assert box["width"] > 0.8 * size[0] or size is WIDE
    text_px = chart.locator("text").first.evaluate("each => each.getBoundingClientRect().height")
    assert text_px > 11
    tab.context.close()


def test_on_paper_it_is_light(file: Path, browser: Browser) -> None:
    tab = Alone(browser, file, dark=True)
    tab.page.emulate_media(media="print")
    assert tab.background() == LIGHT
    tab.context.close()


def test_hostile_names_do_nothing(tmp_path: Path, browser: Browser) -> None:
    make_hostile_run(tmp_path)
    run = RunDir(tmp_path / "runs" / FOLDER_NAME)
    file = write_forms(forms_of(take_snapshot(run, time.time(), ZoneInfo("UTC"))), tmp_path / "to").page
    tab = Alone(browser, file)
    assert "<b onclick" in tab.page.locator("body").inner_text()
    assert [url for url in tab.asked if not url.startswith("data:")] == [file.as_uri()]
    assert tab.said == []
    assert tab.page.locator("b, a, img, script").count() == 0
    tab.context.close()
