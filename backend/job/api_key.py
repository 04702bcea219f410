"""The key of an API: from an environment variable or a file, read anew each time, never kept anywhere else."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Final

from backend.config import ApiConfig

MOST_BYTES: Final = 16_384


class NoKeyError(Exception):
    """The key that run.toml names is not there; the message says where it was looked for and what to do."""


def read_key(config: ApiConfig, environ: Mapping[str, str], base: Path) -> str | None:
    """The key; None where run.toml names none. `base`: what a relative path starts from. Raises NoKeyError."""
    if config.api_key_env is not None:
        key = environ.get(config.api_key_env, "").strip()
        if not key:
            raise NoKeyError(
                f"the variable {config.api_key_env} is not set where the supervisor was started. Export it and start the "
                "supervisor again, or name a file in api_key_file."
            )
    elif config.api_key_file is not None:
        try:
            with (base / Path(config.api_key_file).expanduser()).open("rb") as file:
                key = file.read(MOST_BYTES).decode("utf-8", "replace").strip()
        except (OSError, RuntimeError) as error:  # RuntimeError: "~" without a home
            why = error.strerror if isinstance(error, OSError) else error
            raise NoKeyError(f"the key cannot be read from {config.api_key_file}: {why}. Put it there.") from None
        if not key:
            raise NoKeyError(f"{config.api_key_file} is empty. Put the key there.")
    else:
        return None
    if not key.isascii() or not key.isprintable() or " " in key:
        where = config.api_key_env or config.api_key_file
        raise NoKeyError(f"what {where} holds is no key: it has line breaks, blanks or characters that no header may hold.")
    return key
