"""What is written down about a server so that a later supervisor can prove it is ours: `servers/<replica>.json`, mode 0600
(it holds the server's API key)."""

from __future__ import annotations

import contextlib
import os
import secrets
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

import orjson

from backend.job.process_tree import ProcessMark
from backend.job.replica import StartRefused


@dataclass(frozen=True, slots=True)
class ServerRecord:
    """One life of one server. Written before the process is started (`main` None) and completed after."""

    replica: str
    launch: str  # random id; also in the process's environment
    boot: str  # boot id of the machine: marks of another boot mean nothing
    host: str
    port: int
    api_key: str | None = field(repr=False)  # None: the server turned out to ask for none
    command: list[str]  # redacted
    launched_at: float  # epoch seconds
    log_offset: int  # where this life's output begins in the replica's log
    main: ProcessMark | None = None  # the process started; it leads its session
    children: list[ProcessMark] = field(default_factory=list)  # all its descendants and session members, a few seconds ago
    container: str | None = None  # id, for a server in a container
    ready_at: float | None = None
    version: str | None = None
    gpu_memory_before_bytes: int | None = None  # in use on its GPUs before it was started

    @property
    def base_url(self) -> str:
        """Where it answers."""
        return f"http://{self.host}:{self.port}"


def new_api_key() -> str:
    """A key for one life of one server."""
    return f"headway-{secrets.token_hex(24)}"


def write_private(path: Path, content: bytes) -> None:
    """Replaces a file in one step; only the owner may read it, also while it is written."""
    temporary = _temporary(path)
    with contextlib.suppress(FileNotFoundError):
        temporary.unlink()
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(path)


def write_launch(folder: Path, record: ServerRecord, files: Mapping[str, str]) -> None:
    """Writes what a launch needs (files by name) and its record, before the process is there: whoever finds the process later
    can prove that it is ours. Raises StartRefused."""
    try:
        for name, content in files.items():
            write_private(folder / name, content.encode())
        save_record(folder, record)
    except OSError as error:
        raise StartRefused(
            f"{folder} cannot be written: {error.strerror}. Make room there, or correct its permissions."
        ) from error


def save_record(folder: Path, record: ServerRecord) -> None:
    """Writes `<folder>/<replica>.json`."""
    write_private(folder / f"{record.replica}.json", orjson.dumps(asdict(record), option=orjson.OPT_INDENT_2))


def load_record(folder: Path, replica: str) -> ServerRecord | None:
    """The record of that replica; None where there is none or it cannot be understood (then the environment of running
    processes still tells which are ours)."""
    try:
        fields = orjson.loads((folder / f"{replica}.json").read_bytes())
        record = ServerRecord(**fields)
        main = None if record.main is None else ProcessMark(**fields["main"])
        return replace(record, main=main, children=[ProcessMark(**mark) for mark in fields["children"]])
    except (OSError, TypeError, KeyError, orjson.JSONDecodeError):
        return None


def remove_record(folder: Path, replica: str) -> None:
    """Forgets the record and the key file of that replica, and what a writer that was killed left of them."""
    for name in (f"{replica}.json", f"{replica}.yaml"):
        for path in (folder / name, _temporary(folder / name)):
            with contextlib.suppress(FileNotFoundError):
                path.unlink()


def _temporary(path: Path) -> Path:
    """Where a file is written before it takes its place."""
    return path.with_name(f"{path.name}.tmp")
