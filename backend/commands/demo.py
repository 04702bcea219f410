"""`demo`: makes the run of examples/demo, starts it and opens the dashboard on it. Made again once the last one is finished."""

from __future__ import annotations

import argparse
import tempfile
from itertools import count
from pathlib import Path
from typing import Final

from backend.commands.dashboard import dashboard
from backend.commands.speaking import complain, say
from backend.commands.steering import who
from backend.config import EngineKind, RunConfig, load, save
from backend.control import ControlError
from backend.control.create import create, with_absolute_paths
from backend.control.start import StartOutcome, start
from backend.heartbeat import lock_is_held, read_heartbeat
from backend.records import RunPhase
from backend.run_dir import RunDir
from backend.runs import command_name, runs_folder
from backend.simulator import fake_nvml

ROOT: Final = Path(__file__).resolve().parents[2]
EXAMPLES: Final = ROOT / "examples/demo"
NVML_LIBRARY: Final = ROOT / "build/fake_nvml"
GPU_FOLDER: Final = "simulated_gpus"  # in the run: what the simulated replicas say of their GPUs


def demo(options: argparse.Namespace) -> int:
    """Goes on with an unfinished demo, else makes a new one; then it is the dashboard, until it is interrupted."""
    kind = "demo-cpu" if options.cpu else "demo-held" if options.held else "demo"
    run = unfinished_demo(kind, runs_folder())
    result = start(run, who())
    if result.outcome is StartOutcome.FAILED:
        complain(f"{run.name} could not be started. {result.reason}")
        return 1
    name = command_name(run)
    say(
        f"The run {name} is at work{'' if result.pid is None else f' (supervisor: pid {result.pid})'}. Things to try:\n"
        f"  Pause, Resume and Kill on the page Overview; a kill asks first\n"
        f"  kill -9 {result.pid or 'PID'}, the supervisor: the page says so and offers to restart it; nothing is lost\n"
        f"  kill -9 a server whose pid is on the page Engine: it comes back by itself\n"
        f"Ctrl-C ends the dashboard; the run goes on. To stop it: python -m backend stop {name}"
    )
    code = dashboard(options)
    if lock_is_held(run):
        say(f"The run {name} goes on without the dashboard. To stop it: python -m backend stop {name}")
    return code


def unfinished_demo(kind: str, runs: Path) -> RunDir:
    """The first of `kind`, `kind`-2, ... that is not finished; it is made where it does not exist.

    Raises ControlError and what `create` raises.
    """
    for number in count(1):
        run = RunDir(runs / (kind if number == 1 else f"{kind}-{number}"))
        if not run.config.exists():
            return make_demo(EXAMPLES / f"{kind}.toml", run)
        if not _is_finished(run):
            return run
    raise AssertionError("count() does not end")


def make_demo(example: Path, run: RunDir) -> RunDir:
    """Makes the run of an example under its own name, with GPUs to look at where the engine is simulated."""
    settings = with_absolute_paths(load(example), example.parent).model_copy(update={"name": run.name})
    if settings.engine.kind is EngineKind.LOCAL and settings.engine.python and not Path(settings.engine.python).exists():
        raise ControlError(f"There is no SGLang at {settings.engine.python}. Install it first: make engine-cpu")
    with tempfile.TemporaryDirectory() as folder:
        draft = Path(folder) / "demo.toml"
        save(_with_gpus(settings, run) if settings.engine.kind is EngineKind.SIMULATED else settings, draft)
        made = create(draft, run.root.parent)
    if made_gpus := load(made.config).engine.env.get("FAKE_NVML_DIR"):
        Path(made_gpus).mkdir()
        (Path(made_gpus) / "box").write_text(f"count {settings.engine.replicas}\n")
    return made


def _with_gpus(settings: RunConfig, run: RunDir) -> RunConfig:
    """With a stand-in for NVML, and replicas that tell it what their GPUs do. Without a compiler GPUs are not measured."""
    try:
        library = fake_nvml.build(NVML_LIBRARY)
    except (fake_nvml.FakeNvmlError, OSError) as error:
        complain(f"The page GPUs stays empty: {error}")
        return settings.model_copy(update={"telemetry": settings.telemetry.model_copy(update={"gpu": False})})
    folder = str(run.root / GPU_FOLDER)
    engine = settings.engine.model_copy(
        update={
            "args": [*settings.engine.args, "--gpu-state-file", folder],
            "env": {**settings.engine.env, "HEADWAY_NVML_LIBRARY": str(library), "FAKE_NVML_DIR": folder},
        }
    )
    return settings.model_copy(update={"engine": engine})


def _is_finished(run: RunDir) -> bool:
    heartbeat = read_heartbeat(run)
    return heartbeat is not None and heartbeat.phase is RunPhase.FINISHED and not lock_is_held(run)
