"""A browser tab on the dashboard: opened, waited for, pressed, read."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from playwright.sync_api import Browser, Locator, Page, expect, sync_playwright

CHROMIUM = Path("/usr/bin/chromium")
ARGUMENTS = (
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-dev-shm-usage",
)
WIDE = (1440, 900)
NARROW = (390, 844)
PATIENCE_MS = 30_000
"""For what needs a rerun or a supervisor's answer, on a machine that others keep busy."""
START_PATIENCE_MS = 60_000
"""For a press on Start: a supervisor imports for seconds, then a server."""


@contextmanager
def chromium() -> Iterator[Browser]:
    """A Chromium without windows."""
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=str(CHROMIUM), args=list(ARGUMENTS))
        try:
            yield browser
        finally:
            browser.close()


class Tab:
    """One tab with a storage of its own. What went wrong in it is collected: scripts' errors and dialogs."""

    def __init__(self, browser: Browser, *, size: tuple[int, int] = WIDE, dark: bool = False) -> None:
        self.context = browser.new_context(
            viewport={"width": size[0], "height": size[1]},
            color_scheme="dark" if dark else "light",
            timezone_id="Europe/Berlin",
            reduced_motion="reduce",
        )
        self.page: Page = self.context.new_page()
        self.page.set_default_timeout(PATIENCE_MS)
        self.errors: list[str] = []
        self.dialogs: list[str] = []
        self.page.on("pageerror", lambda error: self.errors.append(str(error)))
        self.page.on("dialog", self._refuse)

    def open(self, url: str) -> Tab:
        """Goes there and waits until the page is drawn."""
        self.page.goto(url, wait_until="domcontentloaded")
        return self.settle()

    def settle(self) -> Tab:
        """Waits until no script of the page runs."""
        self.page.locator("[data-testid=stApp][data-test-script-state=notRunning]").wait_for(timeout=PATIENCE_MS)
        return self

    def button(self, name: str) -> Locator:
        """The buttons of that name that can be seen, whatever sign stands before it."""
        return self.page.get_by_role("button", name=re.compile(rf"(^|\s){re.escape(name)}$")).filter(visible=True)

    def row(self, dataset: str) -> Locator:
        """A dataset's row in the table of Overview."""
        return self.page.locator(f".st-key-hw-row-{dataset}")

    def expect_text(self, text: str | re.Pattern[str], timeout_s: float = PATIENCE_MS / 1000) -> None:
        """Waits until it is to be read somewhere on the page."""
        expect(self.page.get_by_text(text).filter(visible=True).first).to_be_visible(timeout=timeout_s * 1000)

    def text(self) -> str:
        """All that is to be read."""
        return self.page.locator("[data-testid=stApp]").inner_text()

    def figure(self, label: str) -> str:
        """A figure of Overview by its label, as shown."""
        cell = self.page.locator(".hw-figure").filter(has=self.page.get_by_role("heading", name=label, exact=True))
        return cell.locator(".hw-value").inner_text()

    def overflow_px(self) -> int:
        """By how much the page is wider than the window."""
        return int(self.page.evaluate("document.scrollingElement.scrollWidth - window.innerWidth"))

    def background(self) -> str:
        """The colour behind the page."""
        return str(self.page.locator("[data-testid=stApp]").evaluate("app => getComputedStyle(app).backgroundColor"))

    def close(self) -> None:
        self.context.close()

    def _refuse(self, dialog: Any) -> None:
        self.dialogs.append(dialog.message)
        dialog.dismiss()
