"""A run's configuration while it is being written: fields of a form ⇄ TOML, its faults, and what its prompt files hold.

Nothing is kept here: the page holds what was typed, `create.py` makes the run.
"""

from __future__ import annotations

import copy
import os
import shlex
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import tomli_w

from backend.config import ConfigError, DatasetConfig, EngineKind, RunConfig, parse, validate
from backend.control import ControlError
from backend.prompts import BadLine, PromptFileError, preview, scan
from backend.prompts.files import JSONL_ENDINGS, PARQUET_ENDINGS, expand
from backend.records import Json, Prompt

PREVIEWED: Final = 3
COUNTED_BYTES: Final = 2 << 30  # larger prompt files are counted when the run is created
SOURCE: Final = "form"
NAMES_SHOWN: Final = 300


@dataclass(frozen=True, slots=True)
class DatasetLook:
    """What is seen of a dataset before the run exists."""

    files: int = 0
    bytes: int = 0
    prompts: int | None = None  # lines that are not blank; None: too large to be counted here
    first: tuple[Prompt | BadLine, ...] = ()
    fault: str | None = None


@dataclass(frozen=True, slots=True)
class Listing:
    """Names in a folder: folders, and files that may hold prompts."""

    folder: Path
    folders: tuple[str, ...]
    files: tuple[str, ...]
    left_out: int = 0  # names beyond those that are listed


def to_toml(data: Mapping[str, Any]) -> str:
    """TOML as it will be created from. Raises ConfigError for what TOML cannot hold (a lone surrogate)."""
    try:
        text = tomli_w.dumps(data)
        text.encode()
    except (TypeError, ValueError) as error:
        raise ConfigError(f"{SOURCE}: holds what TOML cannot: {error}") from None
    return text


def from_toml(text: str) -> Json:
    """The tables of a TOML text that was pasted or read, without what `create` adds. Raises ConfigError."""
    data = parse(text, "TOML")
    data.pop("frozen", None)
    return data


def merged(base: Mapping[str, Any], fields: Mapping[str, Any]) -> Json:
    """`base` with the form's fields on top; a field that is None is taken out, as is a section that is left empty."""
    data: Json = copy.deepcopy(dict(base))
    for name, value in fields.items():
        if isinstance(value, Mapping):
            inner = data.get(name)
            value = merged(inner if isinstance(inner, dict) else {}, value) or None  # noqa: PLW2901 - the section's new content
        if value is None:
            data.pop(name, None)
        else:
            data[name] = value
    return data


def words_of(text: str, field: str) -> list[str]:
    """Flags as they are typed, with a shell's quotes. Raises ConfigError."""
    try:
        return shlex.split(text, comments=True)
    except ValueError as error:
        raise ConfigError(
            f"{SOURCE}: {field}: {str(error).lower()}: close the quote, or put the word in the other quotes"
        ) from None


def read_settings(data: Mapping[str, Any]) -> RunConfig:
    """The configuration that the form makes. Raises ConfigError, a line a fault."""
    return validate(dict(data), SOURCE)


def faults_of(error: ConfigError) -> list[str]:
    """The lines of an error, without the name of their source."""
    return [line.removeprefix(f"{SOURCE}: ") for line in str(error).splitlines()]


def machine_faults(settings: RunConfig, base: Path, environ: Mapping[str, str]) -> list[str]:
    """What this machine lacks for it, as `key: what is wrong`. The supervisor's checks at the start go further."""
    engine, faults = settings.engine, []
    if engine.kind is EngineKind.LOCAL:
        if engine.python is None and engine.command is None:
            faults.append("engine.python: missing. Name the Python that has sglang, as /opt/sglang/bin/python")
        elif engine.python is not None and shutil.which(os.path.expanduser(engine.python), path=environ.get("PATH")) is None:
            faults.append(f"engine.python: {engine.python} is no program on this machine. Name the Python that has sglang")
    if engine.kind is EngineKind.CONTAINER and shutil.which(engine.docker, path=environ.get("PATH")) is None:
        faults.append(f"engine.docker: {engine.docker} is not installed here, or not in PATH")
    if settings.model.path.startswith(("/", "~", "./", "../")) and engine.kind in (EngineKind.LOCAL, EngineKind.CONTAINER):
        folder = base / os.path.expanduser(settings.model.path)
        if not folder.is_dir():
            faults.append(f"model.path: {folder} is no folder on this machine")
    wanted = [*engine.env_from, *([engine.api_key_env] if engine.api_key_env else [])]
    faults += [
        f"engine: the variable {name} is not set where the dashboard runs. Export it there before `streamlit run`"
        for name in wanted
        if name not in environ
    ]
    return faults


def look_at(dataset: DatasetConfig, base: Path) -> DatasetLook:
    """How many prompts a dataset has and its first ones. What is wrong with its files is in `fault`."""
    try:
        paths = list(expand(dataset, base))
        first = tuple(preview(dataset, base, PREVIEWED))
        size = sum(path.stat().st_size for path in paths)
        prompts = sum(file.records for file in scan(dataset, base)) if size <= COUNTED_BYTES else None
    except PromptFileError as error:
        return DatasetLook(fault=str(error).removeprefix(f"dataset `{dataset.name}`: "))
    except OSError as error:
        return DatasetLook(fault=f"{error.filename or dataset.path}: {error.strerror}")
    return DatasetLook(len(paths), size, prompts, first)


def stamp(dataset: DatasetConfig, base: Path) -> tuple[tuple[str, int, int], ...]:
    """What changes when a dataset's files do: path, size and time of each. Empty where they cannot be found."""
    try:
        return tuple((str(path), (s := path.stat()).st_size, s.st_mtime_ns) for path in expand(dataset, base))
    except (PromptFileError, OSError):
        return ()


def list_folder(folder: Path) -> Listing:
    """Names of a folder's folders and prompt files, hidden ones left out. Raises ControlError."""
    try:
        names = sorted(entry.name for entry in os.scandir(folder) if not entry.name.startswith("."))
        folders = [name for name in names if (folder / name).is_dir()]
    except OSError as error:
        raise ControlError(f"{folder} cannot be listed ({error.strerror}).") from None
    files = [name for name in names if name.lower().endswith((*JSONL_ENDINGS, *PARQUET_ENDINGS)) and name not in folders]
    beyond = max(0, len(folders) - NAMES_SHOWN) + max(0, len(files) - NAMES_SHOWN)
    return Listing(folder, tuple(folders[:NAMES_SHOWN]), tuple(files[:NAMES_SHOWN]), beyond)


def free_name(path: str, taken: Sequence[str]) -> str:
    """A dataset's name made of a file's: letters, digits, dots, dashes and underscores, unlike those that are taken."""
    stem = Path(path).name.split(".")[0]
    plain = "".join(c if c.isascii() and (c.isalnum() or c in "_-") else "-" for c in stem).strip("-_")[:48] or "dataset"
    return next(name for i in range(1, len(taken) + 2) if (name := plain if i == 1 else f"{plain}-{i}") not in taken)
