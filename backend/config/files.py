"""Loads and saves a run.toml."""

from __future__ import annotations

import os
import re
import tomllib
from pathlib import Path
from typing import Any, Final

import tomli_w
from pydantic import ValidationError

from backend.config.checks import check
from backend.config.fault_lines import ConfigError, fault_lines
from backend.config.shape import RunConfig

FREE_TABLES: Final = frozenset({"extra_body", "chat_template_kwargs"})


def load(path: Path) -> RunConfig:
    """Reads and validates a run.toml. Raises ConfigError with one line a fault, all of them at once."""
    return validate(_read(path), str(path))


def validate(data: dict[str, Any], source: str) -> RunConfig:
    """The configuration that TOML's tables hold. Raises ConfigError; each of its lines begins with `source`."""
    try:
        config = RunConfig.model_validate(data)
    except ValidationError as error:
        faults = fault_lines(error, data, RunConfig)
    else:
        faults = check(config)
        if not faults:
            return config
    raise ConfigError("\n".join(f"{source}: {fault}" for fault in faults))


def save(config: RunConfig, path: Path) -> None:
    """Writes the TOML with all defaults spelled out, so that a later version's defaults change nothing. Replaces the file at
    once or not at all. Raises ConfigError for what TOML cannot hold, OSError."""
    data = _without_nothing(config.model_dump(mode="json"))
    try:
        content = tomli_w.dumps(data).encode()
    except (TypeError, ValueError) as error:
        raise ConfigError(f"{path}: the configuration holds what TOML cannot: {error}") from None
    draft = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        with draft.open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        draft.rename(path)
    finally:
        draft.unlink(missing_ok=True)
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def _read(path: Path) -> dict[str, Any]:
    try:
        text = path.read_bytes().decode("utf-8-sig")
    except FileNotFoundError:
        raise ConfigError(f"{path}: does not exist. Name a run's TOML file.") from None
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path}: not UTF-8 (byte {error.start + 1}). Save it as UTF-8.") from None
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {error.strerror}.") from None
    return parse(text, str(path))


def parse(text: str, source: str) -> dict[str, Any]:
    """TOML's tables. Raises ConfigError, which names `source` and the line."""
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        reason = str(error).replace("(at end of document)", f"(at line {text.count(chr(10)) + 1}, the end of the file)")
        hint = "" if re.search(r"at line \d+", reason) else " (somewhere in the file)"
        raise ConfigError(f"{source}: not valid TOML: {reason}{hint}. Correct that line.") from None


def _without_nothing(section: dict[str, Any]) -> dict[str, Any]:
    """TOML has no null: what is None is left out. An empty table or list of ours means what a missing key means."""
    kept: dict[str, Any] = {}
    for key, value in section.items():
        if value is None or value in ({}, []):
            continue
        if key in FREE_TABLES:
            kept[key] = value  # the user's own: an empty list in there means something
        elif isinstance(value, dict):
            kept[key] = _without_nothing(value)
        elif isinstance(value, list):
            kept[key] = [_without_nothing(item) if isinstance(item, dict) else item for item in value]
        else:
            kept[key] = value
    return {key: value for key, value in kept.items() if value != {}}
