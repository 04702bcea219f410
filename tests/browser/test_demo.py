"""`python -m backend demo`: from one command to figures that move; Ctrl-C ends the dashboard and not the run."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

from playwright.sync_api import expect

from backend.heartbeat import lock_is_held
from backend.run_dir import RunDir
from tests.browser.dashboard_process import ROOT, free_port
from tests.browser.tab import PATIENCE_MS, Tab
from tests.runs.live_run import LiveRun


def test_the_demo_starts_is_seen_and_outlives_its_dashboard(new_tab: Callable[..., Tab], tmp_path: Path) -> None:
    said, run = tmp_path / "said", LiveRun(RunDir(tmp_path / "runs/demo"))
    with said.open("wb") as output:
        demo = subprocess.Popen(
            [sys.executable, "-m", "backend", "demo", "--port", str(free_port())],
            cwd=ROOT,
            env={**os.environ, "HEADWAY_RUNS": str(tmp_path / "runs")},
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
        )
    try:
        url = _address(demo, said)
        tab = new_tab().open(f"{url}/?run=demo")
        tab.expect_text("simulated")
        expect(tab.row("B1")).to_contain_text("running", timeout=PATIENCE_MS)
        tab.page.wait_for_function("/[1-9]/.test(document.querySelector('.hw-value')?.textContent ?? '')")
        expect(tab.page.get_by_text("GPU 3", exact=True)).to_be_visible(timeout=PATIENCE_MS)
        tab.close()
        demo.send_signal(signal.SIGINT)
        assert demo.wait(timeout=30) == 0
        words = said.read_text()
        assert words.count("python -m backend stop ") == 2, words  # at the beginning and at the end
        assert "Traceback" not in words
        assert lock_is_held(run.run)
    finally:
        demo.kill()
        demo.wait(timeout=10)
        run.cleanup()


def _address(demo: subprocess.Popen[bytes], said: Path) -> str:
    """Where the dashboard is, as soon as it is said."""
    deadline = time.monotonic() + 90
    while True:
        found = re.search(r"http://[\w.:]+", said.read_text())
        if found:
            return found[0]
        assert demo.poll() is None, said.read_text()
        assert time.monotonic() < deadline, said.read_text()
        time.sleep(0.1)
