"""The files of an export: written into a hidden folder beside the target, which takes its name only when all is on disk.

Killed at any moment, there is the whole export or none of it; what a killed one left is removed by the next.
"""

from __future__ import annotations

import errno
import fcntl
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any, Final, Protocol

import orjson

from backend.records import Json
from backend.report.export.forms import schema, traits
from backend.report.export.options import ExportError, Format

CARD: Final = "README.md"
ENDINGS: Final = ("jsonl", "parquet")
SPLITS: Final = ("train", "holdout")
OWN_FILES: Final = frozenset({CARD, *(f"{split}.{ending}" for split in SPLITS for ending in ENDINGS)})
BUFFER_BYTES: Final = 1 << 20
SEEN_FROM_START_BYTES: Final = 256 << 10  # what readers look at before they decide which columns there are
GROUP_ROWS: Final = 2_000
GROUP_BYTES: Final = 32 << 20


class Writer(Protocol):
    """One file of an export."""

    rows: int

    def add(self, row: Json) -> None:
        """One more sample."""

    def close(self) -> None:
        """The file is complete and on disk."""

    def give_up(self) -> None:
        """Lets go of a file that will not be completed."""


@contextmanager
def draft_folder(to: Path, *, force: bool) -> Iterator[Path]:
    """A folder to fill, which becomes `to` at the end; after any error nothing of it is left.

    Raises ExportError where `to` is there already (with `force`: where it holds anything but an export), where another export
    is writing it, or where the disk refuses.
    """
    to = Path(os.path.abspath(os.path.expanduser(to)))
    if not to.name:
        raise ExportError(f"{to} is no folder that an export could make. Name another one.")
    draft = to.with_name(f".{to.name}.exporting")
    try:
        to.parent.mkdir(parents=True, exist_ok=True)
        if _aside(to).exists() and not os.path.lexists(to):  # killed between the two renames of a replacement
            _aside(to).rename(to)
        _refuse_taken(to, force=force)
        with _held(draft, to):
            yield draft
            (draft / ".lock").unlink()
            _sync(draft)
            _take_place(draft, to, force=force)
    except OSError as error:
        raise ExportError(_words(error, to)) from error


def open_writer(folder: Path, split: str, form: Format, *, parquet: bool) -> Writer:
    """The file of a split."""
    return _ParquetWriter(folder / f"{split}.parquet", form) if parquet else _JsonlWriter(folder / f"{split}.jsonl")


class _JsonlWriter:
    """One JSON object a line. `datasets` takes its columns from the first lines, so whatever field turns up later for the
    first time moves to the top with its line.
    """

    def __init__(self, path: Path) -> None:
        self.rows = 0
        self._path, self._body = path, path.with_name(path.name + ".body")
        self._file: IO[bytes] = self._body.open("wb", buffering=BUFFER_BYTES)
        self._written_bytes = 0
        self._head: list[bytes] = []
        self._seen: set[str] = set()

    def add(self, row: Json) -> None:
        line = orjson.dumps(row, option=orjson.OPT_SERIALIZE_NUMPY | orjson.OPT_APPEND_NEWLINE)
        self.rows += 1
        found = traits(row)
        if not found <= self._seen:
            self._seen |= found
            if self._written_bytes > SEEN_FROM_START_BYTES:
                self._head.append(line)
                return
        self._file.write(line)
        self._written_bytes += len(line)

    def close(self) -> None:
        self._file.close()
        if not self._head:
            self._body.rename(self._path)
        else:
            with self._path.open("wb", buffering=BUFFER_BYTES) as whole, self._body.open("rb") as body:
                whole.writelines(self._head)
                shutil.copyfileobj(body, whole, BUFFER_BYTES)
            self._body.unlink()
        _sync(self._path)

    def give_up(self) -> None:
        with suppress(OSError):  # a full disk refuses what is still buffered
            self._file.close()


class _ParquetWriter:
    """Row groups of bounded size; the columns are the form's, whatever the rows hold."""

    def __init__(self, path: Path, form: Format) -> None:
        import pyarrow.parquet as pq

        self.rows = 0
        self._path = path
        self._schema = schema(form)
        self._file: Any = pq.ParquetWriter(path, self._schema, compression="zstd")
        self._group: list[Json] = []
        self._group_bytes = 0

    def add(self, row: Json) -> None:
        self.rows += 1
        self._group.append(row)
        self._group_bytes += _size_bytes(row)
        if len(self._group) >= GROUP_ROWS or self._group_bytes >= GROUP_BYTES:
            self._flush()

    def close(self) -> None:
        self._flush()
        self._file.close()
        _sync(self._path)

    def give_up(self) -> None:
        with suppress(OSError):
            self._file.close()

    def _flush(self) -> None:
        import pyarrow as pa

        if self._group:
            self._file.write_table(pa.Table.from_pylist(self._group, schema=self._schema))
            self._group, self._group_bytes = [], 0


def _size_bytes(row: Json) -> int:
    if "input_ids" in row:
        return 5 * len(row["input_ids"])
    if "text" in row:
        return len(row["text"])
    said = row.get("messages") or row.get("conversations") or ()
    return sum(len(value) for message in said for value in message.values() if isinstance(value, str))


def _refuse_taken(to: Path, *, force: bool) -> None:
    if not os.path.lexists(to):
        return
    if not force:
        raise ExportError(f"{to} is there already. Name another folder, or replace it with --force.")
    if to.is_symlink() or not to.is_dir() or not (to / CARD).is_file() or set(os.listdir(to)) - OWN_FILES:
        raise ExportError(
            f"{to} holds more than an export: --force replaces nothing else. Name another folder, or remove it yourself."
        )


@contextmanager
def _held(draft: Path, to: Path) -> Iterator[None]:
    """The draft's folder, empty, for this process alone."""
    draft.mkdir(exist_ok=True)
    lock = draft / ".lock"
    fd = os.open(lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise ExportError(f"Another export is writing {to} right now. Wait for it, or name another folder.") from None
        for leftover in draft.iterdir():
            if leftover != lock:
                leftover.unlink()
        try:
            yield
        finally:
            if draft.exists():
                shutil.rmtree(draft)
    finally:
        os.close(fd)


def _take_place(draft: Path, to: Path, *, force: bool) -> None:
    _refuse_taken(to, force=force)  # somebody may have put something there meanwhile
    aside = _aside(to)
    if to.exists():
        if aside.exists():
            shutil.rmtree(aside)
        to.rename(aside)
    try:
        draft.rename(to)
    except OSError:
        if aside.exists() and not to.exists():
            aside.rename(to)
        raise
    _sync(to.parent)
    if aside.exists():
        shutil.rmtree(aside)


def _aside(to: Path) -> Path:
    """Where the export that is being replaced lies for the moment between two renames."""
    return to.with_name(f".{to.name}.replaced")


def _sync(path: Path) -> None:
    fd = os.open(path, os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def _words(error: OSError, to: Path) -> str:
    if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
        try:
            free = f"{shutil.disk_usage(to.parent).free / 1e9:.1f} GB free"
        except OSError:
            free = "free space unknown"
        return f"The disk of {to} is full ({free}). Nothing was left there. Free some space, or export to another disk."
    return f"{error.filename or to}: {error.strerror or error}. Nothing was exported; name a folder that you may write."
