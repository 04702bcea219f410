"""How commands speak: to stdout what was done, to stderr why not, with what would steer a terminal escaped."""

from __future__ import annotations

import sqlite3
import sys
from typing import Final

from backend.config import ConfigError
from backend.control import ControlError
from backend.heartbeat import explain_sqlite
from backend.job.adoption.output_files import AdoptError
from backend.prompts import PromptFileError
from backend.report.export.options import ExportError
from backend.report.formatting import plain
from backend.run_dir import RunDirError

REFUSALS: Final = (ConfigError, ControlError, RunDirError, PromptFileError, ExportError, AdoptError, sqlite3.Error, OSError)


def say(text: str) -> None:
    """To stdout, with what would steer a terminal escaped."""
    print(plain(text, keep="\n\t"))


def complain(text: str) -> None:
    """To stderr, likewise."""
    sys.stdout.flush()
    print(plain(text), file=sys.stderr)


def in_words(error: Exception) -> str:
    """An error of `REFUSALS` as sentences."""
    if isinstance(error, sqlite3.Error):
        return f"A database of the run cannot be used: {explain_sqlite(error)}"
    if isinstance(error, OSError):
        return f"{error.filename or 'A file'}: {error.strerror or error}."
    return str(error)
