"""Where the CPU engine lies below a checkout, and the facts of its launch as data."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

SERVED_NAME: Final = "tiny"
MAX_RUNNING_REQUESTS: Final = 64
SHIM: Final = Path(__file__).resolve().parent / "shim"

# What SGLang needs on a machine without a GPU, on top of what any launch has (model, host, port, metrics).
SERVER_ARGS: Final = (
    "--device=cpu",
    "--attention-backend=torch_native",
    "--mem-fraction-static=0.1",
    "--max-total-tokens=65536",
    f"--max-running-requests={MAX_RUNNING_REQUESTS}",
    "--disable-overlap-schedule",
    "--sleep-on-idle",  # else an idle server keeps a core busy
)


@dataclass(frozen=True, slots=True)
class EnginePlace:
    """The files of the CPU engine of one checkout."""

    root: Path  # the checkout

    @property
    def folder(self) -> Path:
        """Everything the installation writes, pip's own cache aside."""
        return self.root / ".engine-cpu"

    @property
    def venv(self) -> Path:
        """The engine's own environment."""
        return self.folder / "venv"

    @property
    def python(self) -> Path:
        """The interpreter that has sglang."""
        return self.venv / "bin" / "python"

    @property
    def model(self) -> Path:
        """The tiny chat model."""
        return self.folder / "model"

    @property
    def requirements(self) -> Path:
        """Every package of the environment, pinned."""
        return self.root / "requirements-engine-cpu.txt"


def engine_env() -> dict[str, str]:
    """Environment variables without which SGLang does not start, or crawls, on a CPU."""
    return {
        "PYTHONPATH": str(SHIM),
        "SGLANG_USE_CPU_ENGINE": "1",
        "HF_HUB_OFFLINE": "1",  # the model is a local folder: nothing is looked up
        "OMP_NUM_THREADS": "1",  # more threads fight over the tiny matrices: 25 times slower on a shared machine
        "SGLANG_CUDA_COREDUMP_BEFORE_CRASH_WAIT_SECS": "0",  # else a crash waits a minute for a GPU's core dump
    }


def engine_settings(root: Path) -> dict[str, Any]:
    """The `model` and `engine` sections of a run.toml whose engine is the CPU engine of this checkout."""
    place = EnginePlace(root.resolve())
    return {
        "model": {"path": str(place.model), "served_name": SERVED_NAME},
        "engine": {"kind": "local", "python": str(place.python), "args": list(SERVER_ARGS), "env": engine_env()},
    }


def missing_reason(place: EnginePlace) -> str | None:
    """Why the engine cannot be started, or None if it can."""
    for part in (place.python, place.model / "config.json", SHIM):
        if not part.exists():
            return f"{part} is missing: run `make engine-cpu`"
    return None
