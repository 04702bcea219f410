"""A run with APIs to compare: an hour into two datasets, on a rented box, one API with prices and one without."""

from __future__ import annotations

import time
from contextlib import closing
from decimal import Decimal
from pathlib import Path

from backend import probes, telemetry_store
from backend.control.create import create
from backend.forecast.observation import Observation
from backend.probes import Probe
from backend.run_dir import RunDir, open_state
from backend.telemetry import GpuSample
from tests.made_forecast import status_of, two_datasets, write_forecast
from tests.made_run import CONFIG, beat, write_config

APIS = """
[api.fast]
base_url = "https://fast.example/v1"
model = "qwen3-8b"
input_usd_per_mtok = 0.1
output_usd_per_mtok = 1.43
concurrency = 600
[api.unpriced]
base_url = "https://unpriced.example/v1"
model = "mine"
requests_per_minute = 60
"""
RENTED = "[costs]\ngpu_hour_usd = 2.5\ngpus = 8\n"
SOLD = CONFIG.replace('path = "tiny"', 'path = "Qwen/Qwen3-32B"')


def make_compared(
    folder: Path, text: str = SOLD + RENTED + APIS, *, seen: Observation | None = None, begun: bool = True
) -> RunDir:
    """The run below `folder`/runs; whoever holds its lock makes its supervisor alive."""
    run = create(write_config(folder, text=text), folder / "runs")
    if begun:
        observed = seen or two_datasets()
        beat(run, status_of(observed), time.time())
        write_forecast(run, observed, time.time() - 20)
    return run


def write_probe(run: RunDir, api: str = "fast", **more: object) -> None:
    """16 answers of 80 tokens/s."""
    figures: dict[str, object] = {
        "model": "qwen3-8b", "asked": 16, "answered": 15, "failed": 1, "rate_limited": 2, "streams": 8, "first_token_s": 0.4,
        "stream_tokens_per_s": 80.0, "stream_log_sd": 0.3, "prompt_tokens": 3000, "cached_tokens": 1500,
        "completion_tokens": 24_000, "cost_usd": Decimal("0.035"), "cost_by_prices_usd": Decimal("0.0346"),
        "local_mean_tokens": 1590.0, "tokens_per_minute": 2_000_000.0,
    }  # fmt: skip
    with closing(open_state(run)) as con:
        probes.create_table(con)
        probes.write(con, Probe(api=api, at=time.time(), **(figures | more)))  # type: ignore[arg-type]


def write_power(run: RunDir, watts_each: float, gpus: int) -> None:
    """A minute of GPUs at work."""
    now = int(time.time())
    with closing(open_state(run)) as con:
        telemetry_store.create_tables(con)
        for at in range(now - 60, now):
            telemetry_store.write(con, [GpuSample(key=f"GPU-{i}", at=at, index=i, power_w=watts_each) for i in range(gpus)])
