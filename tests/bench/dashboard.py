"""What the dashboard costs and how quick it is, on a run at work that has two weeks of telemetry behind it.

Ten tabs are one Chromium and nine that do what a tab asks of the server (poll, rerun fragments) without drawing: ten
Chromium tabs would measure the machine. Chromium draws without a GPU here, which costs it more than on a desk.
"""

from __future__ import annotations

import asyncio
import itertools
import statistics
import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import psutil
from playwright.sync_api import Browser

from backend import telemetry_store
from backend.report import engine
from backend.report.live import LiveRuns
from backend.report.series import read_marks, read_window
from backend.run_dir import open_state
from tests.bench.figure import Figure, SkippedError, at_most, told
from tests.bench.parts import live_run, share_of_core, use_of, write_word_problems
from tests.browser.dashboard_process import Dashboard
from tests.browser.tab import CHROMIUM, Tab, chromium
from tests.browser.watcher import watch_overview
from tests.runs.live_run import LiveRun
from tests.test_telemetry_store import fill_two_weeks

TWO_WEEKS_S = 14 * 86_400
MEASURED_S = 30.0
MEMORY_S = 180.0
CALM_S = 5.0
LOADS = 5


def measure(folder: Path) -> Iterator[Figure]:
    """Charts in this process; then a dashboard with one tab, ten, and three for a while."""
    if not CHROMIUM.exists():
        raise SkippedError(f"there is no {CHROMIUM}: apt-get install chromium")
    write_word_problems(folder / "problems.jsonl", 5_000)
    dataset = {"name": "problems", "path": "problems.jsonl", "token_budget": 100_000_000}
    settings = {
        "engine": {"replicas": 4, "args": ["--speed", "1", "--mean", "500"]},
        "generation": {"concurrency": 48, "max_new_tokens": 8_000},
    }
    with live_run(folder, [dataset], **settings) as run:
        with closing(open_state(run.run)) as con:
            telemetry_store.create_tables(con)
            fill_two_weeks(con, int(time.time()) // 3600 * 3600 - TWO_WEEKS_S)
        run.start()
        run.wait(lambda status: status.in_flight >= 48, what="all slots taken")
        yield from _charts(run)
        dashboard = Dashboard(run.run.root.parent, folder / "dashboard.log")
        dashboard.start()
        try:
            with chromium() as browser:
                yield from _served(browser, dashboard)
        finally:
            dashboard.kill()


def _charts(run: LiveRun) -> Iterator[Figure]:
    """CPU time of what a page asks for a chart of two weeks."""
    took: list[float] = []
    for _ in range(LOADS):
        began, until = time.process_time(), time.time()
        lines, since = read_window(run.run, "engine_samples", engine.FIELDS, until - TWO_WEEKS_S, until)
        read = time.process_time() - began
        figures = engine.engine_figures(lines, read_marks(run.run, since, until), since=since, until=until)
        drawn = time.process_time() - began
        took.append(drawn / len(figures))
    yield told(f"charts of the engine over two weeks: {len(figures)}, of which reading (ms)", read * 1000)
    yield at_most("one of them, read and drawn by the server (ms)", statistics.median(took) * 1000, 200)
    moments = itertools.count(time.time(), 2.0)  # each answer is of another second: none is shared
    live = LiveRuns(lambda: run.run.root.parent, lambda: next(moments))
    live.answer(run.run.name, 0, "all")
    polls = []
    for _ in range(LOADS):
        began = time.process_time()
        live.answer(run.run.name, 0, "all")
        polls.append(time.process_time() - began)
    yield at_most("all of Overview's live figures and charts, all of two weeks (ms)", statistics.median(polls) * 1000, 200)


def _served(browser: Browser, dashboard: Dashboard) -> Iterator[Figure]:
    server = psutil.Process(dashboard.pid).children(recursive=True)[-1].pid
    paints, figures = [], []
    for _ in range(LOADS):
        tab = Tab(browser)
        began = time.monotonic()
        tab.page.goto(dashboard.url(run="run"), wait_until="commit")
        tab.page.wait_for_function("/[0-9]/.test(document.querySelector('.hw-value')?.textContent ?? '')")
        figures.append(time.monotonic() - began)
        paints.append(tab.page.evaluate("performance.getEntriesByName('first-contentful-paint')[0].startTime") / 1000)
        tab.close()
    yield told("first contentful paint of Overview (s, median of 5)", statistics.median(paints), "{:.2f}")
    yield at_most("Overview's figures are there (s, median of 5)", statistics.median(figures), 1.5, "{:.2f}")
    tab = Tab(browser).open(dashboard.url(run="run"))
    time.sleep(CALM_S)
    pages = _chromium_pids()
    before, browsing = use_of(server), _cpu_s(pages)
    time.sleep(MEASURED_S)
    after, browsed = use_of(server), _cpu_s(pages)
    yield at_most("server, one tab on Overview (share of a core)", share_of_core(before, after), 0.03, "{:.1%}")
    yield at_most("Chromium, one tab on Overview", (browsed - browsing) / (after.at - before.at), 0.20, "{:.1%}")
    with _tabs(dashboard, 9):
        time.sleep(CALM_S)
        before = use_of(server)
        time.sleep(MEASURED_S)
        yield at_most("server, ten tabs", share_of_core(before, use_of(server)), 0.15, "{:.1%}")
    with _tabs(dashboard, 2):
        time.sleep(CALM_S)
        first = use_of(server).rss_bytes
        time.sleep(MEMORY_S)
        last = use_of(server).rss_bytes
    yield told("memory of the server (MB)", last / 1e6)
    yield at_most(f"its growth in {MEMORY_S / 60:.0f} minutes with three tabs (MB)", (last - first) / 1e6, 5, "{:.1f}")
    tab.close()


@contextmanager
def _tabs(dashboard: Dashboard, count: int) -> Iterator[None]:
    """So many tabs that draw nothing, in an event loop of their own."""
    ready, loop = threading.Event(), asyncio.new_event_loop()
    ended = asyncio.Event()
    failed: list[Exception] = []

    def work() -> None:
        loop.call_soon(ready.set)
        try:
            loop.run_until_complete(watch_overview(dashboard, "run", count, ended))
        except Exception as error:  # noqa: BLE001  # raised below, where it is seen
            failed.append(error)

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    ready.wait(10)
    try:
        yield
    finally:
        loop.call_soon_threadsafe(ended.set)
        thread.join(10)
        loop.close()
    if failed:
        raise failed[0]


def _chromium_pids() -> list[int]:
    """Every process of the browser that was started here."""
    return [child.pid for child in psutil.Process().children(recursive=True) if "chrom" in child.name()]


def _cpu_s(pids: list[int]) -> float:
    return sum(times.user + times.system for times in (psutil.Process(pid).cpu_times() for pid in pids))
