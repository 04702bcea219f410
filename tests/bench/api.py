"""1,000 streams of the simulator's API at 50 tokens/s each: how much of its tokens a minute is used, and at what cost."""

from __future__ import annotations

import json
import time
import urllib.request
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.bench.figure import Figure, at_least, at_most, told
from tests.bench.parts import live_run, share_of_core, simulator, use_of, write_word_problems
from tests.runs.live_run import LiveRun

STREAMS = 1_000
TOKENS_PER_MINUTE = 2_200_000  # of the 3,000,000 that so many streams would make if none ever paused
PROMPTS = 40_000
WARM_S = 180.0  # the minute that is counted, and the swing that the first answers, all begun at once, leave behind
MEASURED_S = 180.0
SPEED_OF_ALL = "1:50,10000:500000"


def measure(folder: Path) -> Iterator[Figure]:
    """Everything goes to the API; the engine never gets ready."""
    write_word_problems(folder / "problems.jsonl", PROMPTS)
    limits = ["--tpm", str(TOKENS_PER_MINUTE), "--max-running-requests", "4000", "--max-total-tokens", "100000000"]
    flags = ["--profile", "api", "--curve", SPEED_OF_ALL, "--chunk-tokens", "25", "--mean", "1000", "--prices", "0.5,2.0"]
    with simulator(folder, *flags, *limits) as url:
        api = {"base_url": f"{url}/v1", "model": "sim/model", "concurrency": STREAMS}
        api |= {"input_usd_per_mtok": 0.5, "output_usd_per_mtok": 2.0, "spend_cap_usd": 10_000.0}
        datasets = [{"name": "problems", "path": "problems.jsonl"}]
        settings: dict[str, Any] = {"api": {"sim": api}, "generation": {"max_new_tokens": 4_000}}
        with live_run(folder, datasets, args=["--fault", "hang-at-start"], **settings) as run:
            pid = run.start()
            run.route("problems", "sim")
            run.wait(lambda status: status.apis[0].in_flight >= 0.8 * STREAMS, what="streams open")
            time.sleep(WARM_S)
            before, billed_before, began_at = use_of(pid), bill(url), time.monotonic()
            most = fewest = run.api().in_flight
            while time.monotonic() - began_at < MEASURED_S:
                time.sleep(1.0)
                in_flight = run.api().in_flight
                most, fewest = max(most, in_flight), min(fewest, in_flight)
            after, billed, minutes = use_of(pid), bill(url), (time.monotonic() - began_at) / 60
            yield from _figures(run, url)
    tokens = sum(billed[kind] - billed_before[kind] for kind in ("prompt_tokens", "completion_tokens"))
    yield at_least("of the API's tokens a minute, used", tokens / minutes / TOKENS_PER_MINUTE, 0.95, "{:.1%}")
    yield at_most("the driver's share of a core", share_of_core(before, after), 1.0, "{:.0%}")
    yield at_most("memory of the driver, peak (MB)", after.peak_rss_bytes / 1e6, 600)
    yield told("streams in flight, at most", most)
    yield told("and at least", fewest)
    yield told("answers 429 while warm", billed["refused"] - billed_before["refused"])


def _figures(run: LiveRun, url: str) -> Iterator[Figure]:
    """What is finished drains, then every sample is counted."""
    run.pause("problems")
    run.wait(lambda status: status.apis[0].in_flight == 0, 600, what="streams drain")
    run.stop()
    status = run.wait_left()
    rows = run.rows()
    twice = [key for key, count in Counter(row.sample_id for row in rows).items() if count > 1]
    billed = bill(url)
    yield at_most("samples twice", len(twice), 0)
    yield at_most("answers on the bill without a row", billed["generations"] - len(rows), 0)
    booked = sum(row.cost_usd or 0.0 for row in rows)
    yield at_most("bill and rows differ by (USD)", abs(billed["usd"] - booked), 1e-6, "{:.9f}")
    yield told("samples", status.datasets[0].finished_samples)


def bill(url: str) -> Any:
    """The simulator's own."""
    with urllib.request.urlopen(f"{url}/simulator/bill", timeout=30) as response:
        return json.loads(response.read())
