"""Whole runs, each cleaned up whatever happens."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from live_run import LiveRun, make_run


@pytest.fixture
def new_run(tmp_path: Path) -> Iterator[Callable[..., LiveRun]]:
    """Makes runs; what they started is killed at the end of the test."""
    made: list[LiveRun] = []

    def make(datasets: list[dict[str, Any]], **settings: Any) -> LiveRun:
        folder = tmp_path / f"r{len(made)}"
        folder.mkdir()
        for dataset in datasets:
            if not Path(dataset["path"]).is_absolute():
                dataset["path"] = str(tmp_path / dataset["path"])
        made.append(make_run(folder, datasets, **settings))
        return made[-1]

    yield make
    for one in made:
        one.cleanup()
