"""Makes a run from a configuration: looks at its prompt files, freezes what shapes the data, makes the folder at once."""

from __future__ import annotations

import os
import secrets
import shutil
from contextlib import suppress
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path

from backend import config as config_file
from backend.config import DatasetConfig, EngineKind, FrozenConfig, RunConfig
from backend.control import ControlError
from backend.prompts import scan
from backend.run_dir import RunDir, refuse_network_file_system
from backend.runs import command_name


def create(config_path: Path, runs: Path) -> RunDir:
    """Makes `runs`/<name>/ with its run.toml and folders; nothing is left behind where it fails.

    Raises:
        ConfigError: the configuration cannot be used.
        PromptFileError: a prompt file is missing or unreadable.
        RunDirError: the folder of runs lies on a network file system.
        ControlError: the run exists already, or the folder cannot be written.
    """
    config_path = Path(os.path.expanduser(config_path)).absolute()
    return create_from(config_file.load(config_path), config_path.parent, runs)


def create_from(settings: RunConfig, base: Path, runs: Path) -> RunDir:
    """The same from a configuration that lies in no file; its relative paths start at `base`."""
    settings = with_absolute_paths(settings, base)
    run = RunDir(runs / settings.name)
    _refuse_existing(run)
    refuse_network_file_system(runs)
    files = {d.name: scan(d, base) for d in settings.datasets}
    frozen = FrozenConfig(
        fingerprint=config_file.fingerprint(settings, files),
        created_at=datetime.now(UTC).isoformat(timespec="seconds"),
        prompt_files=files,
    )
    _put_in_place(run, settings.model_copy(update={"frozen": frozen}))
    return run


def with_absolute_paths(settings: RunConfig, base: Path) -> RunConfig:
    """The configuration with every path of a file absolute, taken from `base` where it is relative."""
    engine = settings.engine
    if engine.python is not None and os.sep in engine.python:
        engine = engine.model_copy(update={"python": _absolute(engine.python, base)})
    if engine.kind is EngineKind.LOCAL and "PYTHONPATH" in engine.env:  # the server's own folder would be no use for it
        paths = [_absolute(p, base) for p in engine.env["PYTHONPATH"].split(os.pathsep) if p]
        engine = engine.model_copy(update={"env": {**engine.env, "PYTHONPATH": os.pathsep.join(paths)}})
    if engine.kind is EngineKind.SIMULATED:
        args = [_absolute(arg, base) if flag == "--lengths" else arg for flag, arg in pairwise(["", *engine.args])]
        engine = engine.model_copy(update={"args": args})
    model = settings.model
    # "org/name" is a Hugging Face id unless such a folder stands beside the TOML
    if model.path.startswith(("/", "~", "./", "../")) or (base / model.path).is_dir():
        model = model.model_copy(update={"path": _absolute(model.path, base)})
    apis = {
        name: api.model_copy(update={"api_key_file": _absolute(api.api_key_file, base)}) if api.api_key_file else api
        for name, api in settings.api.items()
    }
    datasets = [_absolute_dataset(d, base) for d in settings.datasets]
    return settings.model_copy(update={"engine": engine, "model": model, "api": apis, "datasets": datasets})


def _absolute_dataset(dataset: DatasetConfig, base: Path) -> DatasetConfig:
    path = dataset.path
    absolute = _absolute(path, base) if isinstance(path, str) else [_absolute(p, base) for p in path]
    return dataset.model_copy(update={"path": absolute})


def _absolute(path: str, base: Path) -> str:
    # no resolve(): a link stays a link, and a pattern's characters stay as they are
    return os.path.abspath(base / os.path.expanduser(path))


def _refuse_existing(run: RunDir) -> None:
    if run.config.exists():
        raise ControlError(
            f"The run {run.name} exists already in {run.root.parent}. Go on with it "
            f"(python -m backend start {command_name(run)}), or choose another `name` in the configuration."
        )
    if run.root.exists() and not (run.root.is_dir() and not any(run.root.iterdir())):
        raise ControlError(
            f"{run.root} is in the way and is no run (it has no run.toml). Move it away, or choose another `name`."
        )


def _put_in_place(run: RunDir, settings: RunConfig) -> None:
    """Makes the folder under a temporary name, and renames it: no half-made run is ever seen."""
    draft = RunDir(run.root.with_name(f".creating-{run.name}-{secrets.token_hex(4)}"))
    try:
        draft.create_folders()
        config_file.save(settings, draft.config)
        draft.root.rename(run.root)
    except OSError as error:
        if run.config.exists():
            _refuse_existing(run)  # somebody else was quicker
        raise ControlError(f"The run {run.name} cannot be made in {run.root.parent}: {error.strerror or error}.") from None
    finally:
        with suppress(FileNotFoundError):
            shutil.rmtree(draft.root)
