"""The parts of a job over prompt files written for a test: configuration, ledger, runners."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from backend.config import RunConfig
from backend.config.shape import FrozenConfig
from backend.job.dataset_runner import DatasetRunner
from backend.job.ledger import Ledger
from backend.job.wishes import initial
from backend.prompts import scan
from backend.run_dir import RunDir


def make_config(folder: Path, datasets: Mapping[str, Sequence[Any]], **settings: Any) -> RunConfig:
    """A frozen configuration. A dataset's items are prompts, records, or lines to be written as they are (bytes).

    `settings` are sections of the run; `dataset` among them goes to every dataset.
    """
    own = settings.pop("dataset", {})
    for name, items in datasets.items():
        lines = [
            item if isinstance(item, bytes) else json.dumps(_record(name, n, item)).encode() for n, item in enumerate(items)
        ]
        (folder / f"{name}.jsonl").write_bytes(b"\n".join(lines) + b"\n")
    values = {
        "name": "run",
        "model": {"path": "m"},
        "engine": {"kind": "simulated"},
        "datasets": [{"name": name, "path": str(folder / f"{name}.jsonl"), **own} for name in datasets],
        **settings,
    }
    config = RunConfig.model_validate(values)
    files = {dataset.name: scan(dataset, folder) for dataset in config.datasets}
    frozen = FrozenConfig(fingerprint="f", created_at="now", prompt_files=files)
    return config.model_copy(update={"frozen": frozen})


def make_run_dir(folder: Path) -> RunDir:
    """An empty run's folder."""
    run = RunDir(folder / "run")
    run.create_folders()
    return run


def make_runners(config: RunConfig, ledger: Ledger) -> dict[str, DatasetRunner]:
    """A runner for each dataset, with what the configuration alone asks for."""
    wishes = initial(config)
    return {
        one.name: DatasetRunner(config, one, ledger, base=ledger.run.root, wish=wishes.datasets[one.name])
        for one in config.datasets
    }


def _record(name: str, number: int, item: Any) -> Any:
    return {"id": f"{name}-{number}", "prompt": item} if isinstance(item, str) else item
