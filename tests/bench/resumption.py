"""914,000 prompts of which 900,000 are finished: from the start of a supervisor to its next request, and its memory.

The run is made once and kept in build/bench/ (making it takes longer than measuring it); each time a copy of its ledger is
started, with the same shards.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator
from pathlib import Path

from backend.config import load, save
from backend.run_dir import RunDir
from tests.bench.figure import Figure, at_most, told
from tests.bench.finished_run import DONE, make_finished_run
from tests.bench.machine import ROOT
from tests.bench.parts import share_of_core, simulator, use_of
from tests.runs.live_run import LiveRun

KEPT = ROOT / "build" / "bench" / "finished-1"  # another number where what is generated changes
TARGET_S = 10.0
TARGET_MB = 1_000
LIMIT_S = 120.0


def measure(folder: Path) -> Iterator[Figure]:
    """Until the first request of the new life is written to the journal, which happens as it is sent."""
    with simulator(folder, "--speed", "1") as url:
        run = LiveRun(_copy(_kept_run(), folder, url))
        try:
            began = time.monotonic()
            pid = run.start()
            while not (run.run.in_flight.exists() and run.run.in_flight.stat().st_size):
                assert time.monotonic() < began + LIMIT_S, run.story()
                time.sleep(0.01)
            took_s, use = time.monotonic() - began, use_of(pid)
            status = run.wait(lambda status: status.in_flight >= 150, what="all slots taken")
            later = use_of(pid)
            assert status.datasets[0].finished_samples >= DONE
        finally:
            run.cleanup()
    yield at_most("seconds from the start to the first request", took_s, TARGET_S, "{:.1f}")
    yield at_most("memory by then, peak (MB)", use.peak_rss_bytes / 1e6, TARGET_MB)
    yield told("CPU seconds by then", use.cpu_s, "{:.1f}")
    yield told("memory once all slots are taken, peak (MB)", later.peak_rss_bytes / 1e6)
    yield told("share of a core from the first request to all slots taken", share_of_core(use, later), "{:.0%}")


def _kept_run() -> RunDir:
    made = KEPT / "made"  # written last: what was interrupted is made anew
    if not made.exists():
        shutil.rmtree(KEPT, ignore_errors=True)
        make_finished_run(KEPT, "http://127.0.0.1:1")
        made.touch()
    return RunDir(KEPT / "runs" / "run")


def _copy(kept: RunDir, folder: Path, url: str) -> RunDir:
    """The run again, on hard links to its shards, with the server of today."""
    run = RunDir(folder / "run")
    shutil.copytree(kept.root, run.root, copy_function=_link_or_copy)
    config = load(kept.config)
    engine = config.engine.model_copy(update={"urls": [url]})
    run.config.unlink()  # a link would be written through
    save(config.model_copy(update={"engine": engine}), run.config)
    return run


def _link_or_copy(source: str, target: str) -> None:
    if source.endswith(".parquet"):
        try:
            Path(target).hardlink_to(source)
        except OSError:  # another file system
            pass
        else:
            return
    shutil.copy2(source, target)
