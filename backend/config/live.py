"""PURE: the settings that may change while a run goes on, and how their texts are read."""

from __future__ import annotations

import json
import re
from datetime import datetime
from typing import Any, Final

from backend.config.fault_lines import ConfigError, did_you_mean, shown
from backend.config.sglang_flags import flag_faults
from backend.config.shape import FIRST_DEADLINE, LAST_DEADLINE, AtBudget, RunConfig

MAX_CONCURRENCY: Final = 20_000
COUNTS: Final = ("token_budget", "max_samples", "max_new_tokens")
DATASET_SETTINGS: Final = (*COUNTS, "at_budget")
UNITS: Final = {"": 1, "k": 10**3, "M": 10**6, "B": 10**9, "G": 10**9}


def parse_live_setting(config: RunConfig, key: str, text: str) -> tuple[str, Any]:
    """The canonical key and the checked value of `key=text`.

    Keys: `concurrency` (int), `order` (list of dataset names; those left out follow in their present order), `deadline` (ISO
    8601 text with its offset, or None) and, for each dataset, `datasets.<name>.token_budget`, `.max_samples` and
    `.max_new_tokens` (int or None: no limit; the last one for requests to come) and `.at_budget` (text); `datasets.` may be
    left out; for each API `api.<name>.spend_cap_usd` (float or None: no cap). Raises ConfigError.
    """
    text = text.strip()
    if key in ("concurrency", "generation.concurrency"):
        return "concurrency", _concurrency(config, text)
    if key == "order":
        return "order", _order(config, text)
    if key in ("deadline", "forecast.deadline"):
        return "deadline", _deadline(text)
    api, _, api_setting = key.removeprefix("api.").rpartition(".")
    if api in config.api and api_setting == "spend_cap_usd":
        return f"api.{api}.spend_cap_usd", _usd(key, text)
    name, setting = _dataset_setting(config, key)
    canonical = f"datasets.{name}.{setting}"
    if setting == "at_budget":
        if text not in tuple(AtBudget):
            raise ConfigError(f"{canonical}: found {shown('', text)}, must be {' or '.join(AtBudget)}")
        return canonical, text
    if text.lower() == "none":
        return canonical, None
    count = _count(text)
    if count is None or count < 1:
        raise ConfigError(
            f"{canonical}: found {shown('', text)}, must be a whole number of at least 1 (as 5000000 or 5M) or none"
        )
    return canonical, count


def _usd(key: str, text: str) -> float | None:
    if text.lower() == "none":
        return None
    if not re.fullmatch(r"\$?\d{1,9}(\.\d{1,6})?", text, re.ASCII):
        raise ConfigError(f"{key}: found {shown('', text)}, must be an amount in USD (as 25 or 2.50) or none")
    return float(text.removeprefix("$"))


def _dataset_setting(config: RunConfig, key: str) -> tuple[str, str]:
    names = [dataset.name for dataset in config.datasets]
    known = ["concurrency", "order", "deadline", *(f"{name}.{setting}" for name in names for setting in DATASET_SETTINGS)]
    name, dot, setting = key.rpartition(".")
    if not dot:
        raise ConfigError(f"{key}: no setting that can change while a run goes on{did_you_mean(key, known)}")
    if name not in names:
        name = name.removeprefix("datasets.")
    if name not in names:
        raise ConfigError(f"{key}: there is no dataset {shown('', name)}{did_you_mean(name, names)}")
    if setting not in DATASET_SETTINGS:
        raise ConfigError(f"{key}: {setting} cannot change while a run goes on{did_you_mean(setting, DATASET_SETTINGS)}")
    return name, setting


def _concurrency(config: RunConfig, text: str) -> int:
    count = _count(text)
    if count is None or not 1 <= count <= MAX_CONCURRENCY:
        raise ConfigError(f"concurrency: found {shown('', text)}, must be a whole number from 1 to {MAX_CONCURRENCY}")
    a_replica = -(-count // config.engine.replicas)
    at_first = -(-config.generation.concurrency // config.engine.replicas)
    new = set(flag_faults(config.engine.args, requests_per_replica=a_replica)) - set(
        flag_faults(config.engine.args, requests_per_replica=at_first)
    )
    if new:
        raise ConfigError("\n".join(f"concurrency: {fault}" for fault in sorted(new)))
    return count


def _order(config: RunConfig, text: str) -> list[str]:
    names = [dataset.name for dataset in config.datasets]
    wanted: Any = [part.strip() for part in text.split(",") if part.strip()]
    if text.startswith("["):
        try:
            wanted = json.loads(text)
        except ValueError:
            raise ConfigError(f"order: found {shown('', text)}, must be names with commas between, or a JSON list") from None
    if not wanted:
        raise ConfigError(f"order: found nothing, must be dataset names, the first to run first: {', '.join(names)}")
    for name in wanted:
        if name not in names:
            raise ConfigError(f"order: there is no dataset {shown('', name)}{did_you_mean(str(name), names)}")
        if wanted.count(name) > 1:
            raise ConfigError(f"order: {shown('', name)} stands there twice, name each dataset once")
    return list(wanted)


def _deadline(text: str) -> str | None:
    if text.lower() == "none":
        return None
    at = read_deadline(text)
    if at is None:
        raise ConfigError(
            f"deadline: found {shown('', text)}, must be a time with its offset, as 2026-12-03T12:00+01:00, or none (years "
            "2000 to 2999)"
        )
    return at.isoformat(timespec="seconds")


def read_deadline(text: str) -> datetime | None:
    """The moment that a deadline's text names; None where it is no time with its offset, or one that no zone can show."""
    try:
        at = datetime.fromisoformat(text)
    except ValueError:
        return None
    return at if at.tzinfo is not None and FIRST_DEADLINE <= at <= LAST_DEADLINE else None


def _count(text: str) -> int | None:
    """`5000000`, `5_000_000` or `5M`; None for anything else."""
    match = re.fullmatch(r"(\d+(?:_\d+)*)([kMBG]?)", text, re.ASCII)
    return None if match is None or len(text) > 20 else int(match[1]) * UNITS[match[2]]
