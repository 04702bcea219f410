"""`python -m tests.browser.screenshots`: pictures of every page from a demo in progress, light, dark and narrow.

They go to docs/screenshots/PAGE-{light,dark,narrow}.png. It takes about five minutes: the demo has to come far enough first.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from playwright.sync_api import Browser

from backend.commands.demo import unfinished_demo
from backend.control.intents import want_dataset
from backend.heartbeat import read_heartbeat
from tests.browser.dashboard_process import PAGES, ROOT, Dashboard
from tests.browser.tab import CHROMIUM, NARROW, WIDE, Tab, chromium
from tests.runs.live_run import LiveRun

FOLDER = ROOT / "docs/screenshots"
LOOKS = {
    "light": {"size": WIDE},
    "dark": {"size": WIDE, "dark": True},
    "narrow": {"size": NARROW},
}
FINISHED_SAMPLES = 260
"""Two datasets are done by then and a third is at work."""
DRAWN_AFTER_MS = 2_500
HOME = "/home/you/headway"


def main(arguments: Sequence[str] | None = None) -> int:
    """Makes a demo, waits, and takes the pictures."""
    parser = argparse.ArgumentParser(prog="python -m tests.browser.screenshots", description="Pictures of every page.")
    parser.add_argument("--to", type=Path, default=FOLDER, metavar="FOLDER", help="default: docs/screenshots")
    parser.add_argument("--samples", type=int, default=FINISHED_SAMPLES, metavar="N", help="finished before the first picture")
    options = parser.parse_args(arguments)
    if not CHROMIUM.exists():
        print(f"There is no {CHROMIUM}. Remedy: apt-get install chromium", file=sys.stderr)
        return 1
    options.to.mkdir(parents=True, exist_ok=True)
    place = Path(tempfile.mkdtemp(prefix="headway-pictures-"))
    names = {str(place): HOME, str(ROOT): HOME}
    run = LiveRun(unfinished_demo("demo", place / "runs"))
    dashboard = Dashboard(place / "runs", place / "dashboard.log")
    try:
        run.start()
        dashboard.start()
        _wait(run, options.samples)
        want_dataset(run.run, "B4", "paused", "page:ada")  # so that a paused one is to be seen
        with chromium() as browser:
            for look in LOOKS:
                take(browser, dashboard, look, options.to, names)
    finally:
        dashboard.kill()
        run.cleanup()
        shutil.rmtree(place, ignore_errors=True)
    return 0


def take(browser: Browser, dashboard: Dashboard, look: str, folder: Path, names: dict[str, str]) -> None:
    """Every page in one look; folders of this machine are shown by the `names` that the README uses."""
    tab = Tab(browser, size=LOOKS[look]["size"], dark="dark" in LOOKS[look])
    for page in PAGES:
        path = folder / f"{page or 'overview'}-{look}.png"
        tab.open(dashboard.url(page, run="demo"))
        tab.page.wait_for_timeout(DRAWN_AFTER_MS)
        tab.page.evaluate(_RENAME, names)
        tab.page.screenshot(path=path, animations="disabled")
        print(
            f"{path.relative_to(ROOT) if path.is_relative_to(ROOT) else path}: {path.stat().st_size / 1000:.0f} kB", flush=True
        )
    tab.close()


_RENAME = """names => {
  const texts = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT)
  while (texts.nextNode())
    for (const [found, shown] of Object.entries(names))
      if (texts.currentNode.data.includes(found)) texts.currentNode.data = texts.currentNode.data.replaceAll(found, shown)
}"""


def _wait(run: LiveRun, samples: int) -> None:
    """Until so many samples are finished."""
    deadline = time.monotonic() + 600
    while True:
        heartbeat = read_heartbeat(run.run)
        if heartbeat is not None and sum(dataset.finished_samples for dataset in heartbeat.status.datasets) >= samples:
            return
        assert time.monotonic() < deadline, run.story()
        time.sleep(1)


if __name__ == "__main__":
    sys.exit(main())
