"""The viewer in a browser: one run, nothing to press, and word of it when its supervisor dies or the viewer itself does."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from playwright.sync_api import expect

from backend.commands.serving import ROOT
from tests.browser.dashboard_process import free_port
from tests.browser.tab import NARROW, PATIENCE_MS, WIDE, Tab
from tests.runs.live_run import LiveRun


@pytest.fixture
def watched(new_run: Callable[..., LiveRun]) -> LiveRun:
    run = new_run("watched")
    run.start()
    run.wait_dataset("B1", lambda d: d.finished_samples > 20)
    return run


@pytest.fixture
def address(watched: LiveRun, tmp_path: Path) -> Iterator[str]:
    """Where the viewer of that run is."""
    port, log = free_port(), (tmp_path / "viewer.log").open("wb")
    process = subprocess.Popen(
        [sys.executable, "-m", "backend", "view", str(watched.run.root), "--port", str(port)],
        cwd=ROOT, env=dict(os.environ), stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True,
    )  # fmt: skip
    deadline = time.monotonic() + 60
    try:
        while b"Headway's viewer" not in (tmp_path / "viewer.log").read_bytes():
            assert process.poll() is None
            assert time.monotonic() < deadline
            time.sleep(0.1)
        yield f"http://127.0.0.1:{port}/"
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait(10)
        log.close()


def test_a_run_is_watched_and_cannot_be_pressed(watched: LiveRun, address: str, new_tab: Callable[..., Tab]) -> None:
    for looks in ({"size": WIDE}, {"size": NARROW, "dark": True}):
        tab = new_tab(**looks)
        elsewhere: list[str] = []
        tab.page.on("request", lambda request, seen=elsewhere: seen.append(request.url))
        tab.open(f"{address}?run=another")
        tab.expect_text(re.compile("Running B1"))
        tab.page.wait_for_function("document.title.includes('watched')")
        assert tab.page.locator(".stButton, .stDownloadButton, input, select, textarea").count() == 0
        assert tab.overflow_px() <= 0
        assert [url for url in elsewhere if not url.startswith((address, "data:", "blob:"))] == []
        assert str(watched.run.root) not in tab.text()
    for path in ("api/live?run=watched", "events", "new-run"):
        with urllib.request.urlopen(address + path) as answer:
            assert answer.headers["content-type"].startswith("text/html")  # Streamlit's empty frame, as for any address
    watched.kill_supervisor()
    banner = tab.page.locator(".hw-banner")
    expect(banner).to_contain_text("Nobody works on this run", timeout=PATIENCE_MS)
    tab.expect_text(re.compile("Interrupted"))
