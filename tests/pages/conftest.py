"""What tests of pages share."""

from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture
def runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder in which tests make runs that the dashboard finds: `tests.made_run.make_run(runs)`."""
    monkeypatch.setenv("HEADWAY_RUNS", str(tmp_path / "runs"))
    return tmp_path
