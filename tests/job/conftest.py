"""What tests of the job share: an empty run, its ledger, datasets at work, and GPUs that say what a test wants."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from backend.job.ledger import Ledger
from backend.run_dir import RunDir
from backend.simulator import fake_nvml
from tests.job.dataset_job import Job
from tests.job.gpu_box import Box


@pytest.fixture
def run(tmp_path: Path) -> RunDir:
    made = RunDir(tmp_path / "run")
    made.create_folders()
    return made


@pytest.fixture
async def ledger(run: RunDir) -> AsyncIterator[Ledger]:
    opened = Ledger.open(run)
    yield opened
    await opened.close()


@pytest.fixture
async def job(tmp_path: Path) -> AsyncIterator[Job]:
    made = Job(tmp_path)
    await made.runner.read_ahead(10)
    yield made
    await made.ledger.close()


@pytest.fixture(scope="session")
def nvml_library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return fake_nvml.build(tmp_path_factory.mktemp("nvml"))


@pytest.fixture
def box(nvml_library: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Box:
    """Sets what the GPUs say from now on: lines of `key value`."""
    state = tmp_path / "gpus.txt"
    monkeypatch.setenv("HEADWAY_NVML_LIBRARY", str(nvml_library))
    monkeypatch.setenv("FAKE_NVML_FILE", str(state))
    monkeypatch.delenv("FAKE_NVML_DIR", raising=False)

    def say(lines: str) -> None:
        state.write_text("\n".join(line.strip() for line in lines.split(";")) + "\n")

    say("")
    return say
