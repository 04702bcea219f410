"""Runs to look at and to press: simulated, going on for minutes, light on the machine."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import tomli_w

from backend.control.create import create
from tests.runs.live_run import LiveRun, write_prompts

DATASETS = ("B1", "B2")


def make_browser_run(
    runs: Path, name: str, *, speed: float = 3.0, prompts: int = 2_000, rules: str | None = None, **sections: Any
) -> LiveRun:
    """A run of two datasets that ends after many minutes: `runs`/`name`, created and never started.

    `rules`: JSON that tells the simulator how long answers become and how many are bad; none: all are good.
    """
    folder = runs.parent / f"of {name}"
    folder.mkdir()
    for dataset in DATASETS:
        write_prompts(folder / f"{dataset}.jsonl", prompts, marker=dataset)
    lengths = ["--mean", "300"]
    if rules is not None:
        (folder / "rules.json").write_text(rules)
        lengths = ["--lengths", str(folder / "rules.json")]
    config = {
        "name": name,
        "model": {"path": "simulated/model"},
        "engine": {
            "kind": "simulated",
            "args": ["--reasoning-parser", "qwen3", "--load-s", "0.5", "--speed", str(speed), *lengths],
            "stop_deadline_s": 5,
            "restart_backoff_s": 0.2,
        },
        "generation": {"concurrency": 12, "max_new_tokens": 600},
        "driver": {"disk_floor_gb": 0, "retry_backoff_s": 0.1},
        "datasets": [{"name": dataset, "path": f"{dataset}.jsonl"} for dataset in DATASETS],
        **sections,
    }
    path = folder / "run.toml"
    path.write_text(tomli_w.dumps(config))
    return LiveRun(create(path, runs))
