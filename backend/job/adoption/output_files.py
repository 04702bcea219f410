"""The lines of the files to adopt: read once in order, and again one by one, wherever they lie."""

from __future__ import annotations

import gzip
import os
import shutil
import tempfile
from array import array
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import IO, Final

from backend.prompts.files import GZIP_FAULTS, MAX_LINE_BYTES
from backend.prompts.lines import decode_line
from backend.records import Json

COPY_BYTES: Final = 1 << 20


class AdoptError(Exception):
    """Nothing more was adopted; the message says why and what to do."""


class OutputFiles:
    """Numbered lines of several JSONL files, plain or gzip."""

    def __init__(self, paths: Sequence[Path], scratch: Path) -> None:
        """`scratch` is a folder with room for what is unpacked."""
        self._paths = paths
        self._scratch = scratch
        self._stack = ExitStack()
        self._files: list[IO[bytes]] = []
        self._offsets = array("q")  # of each numbered line, in its file
        self._lines = array("q")
        self._of_file = array("i")

    def __enter__(self) -> OutputFiles:
        """Raises AdoptError where a file cannot be opened."""
        try:
            for path in self._paths:
                self._files.append(self._stack.enter_context(self._open(path)))
        except BaseException:
            self._stack.close()
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._stack.close()

    def read(self) -> Iterator[tuple[int, Json | str]]:
        """Every line that is not blank: its number, and its record or what is wrong with it. Raises AdoptError."""
        for index, (path, file) in enumerate(zip(self._paths, self._files, strict=True)):
            offset = 0
            try:
                for line, text in enumerate(iter(partial(file.readline, MAX_LINE_BYTES + 1), b""), 1):
                    if len(text) > MAX_LINE_BYTES:
                        raise AdoptError(
                            f"{path}:{line} is longer than {MAX_LINE_BYTES >> 20} MiB: one object a line is expected."
                        )
                    decoded = decode_line(text, is_first=line == 1)
                    if decoded is not None:
                        self._offsets.append(offset)
                        self._lines.append(line)
                        self._of_file.append(index)
                        yield len(self._offsets) - 1, decoded
                    offset += len(text)
            except OSError as error:
                raise AdoptError(f"{path} cannot be read: {error.strerror or error}.") from None

    def record(self, number: int) -> Json:
        """The record of a line that held one. Raises AdoptError where the file changed meanwhile."""
        file = self._files[self._of_file[number]]
        file.seek(self._offsets[number])
        decoded = decode_line(file.readline(), is_first=self._offsets[number] == 0)
        if not isinstance(decoded, dict):
            raise AdoptError(f"{self.place(number)} changed while it was read. Wait for its script to end, then adopt again.")
        return decoded

    def place(self, number: int) -> str:
        """`file:line`."""
        return f"{self._paths[self._of_file[number]]}:{self._lines[number]}"

    def written_at(self, number: int) -> float:
        """When the line's file was last written, epoch seconds."""
        return self._paths[self._of_file[number]].stat().st_mtime

    def _open(self, path: Path) -> IO[bytes]:
        if path.exists() and not path.is_file():
            raise AdoptError(f"{path} is no file. Name the JSONL files themselves: {path}/*.jsonl")
        try:
            if not path.name.lower().endswith(".gz"):
                return path.open("rb")
            unpacked = self._stack.enter_context(tempfile.TemporaryFile(dir=self._scratch))  # noqa: SIM115  (it is one)
            with gzip.open(path) as packed:
                shutil.copyfileobj(packed, unpacked, COPY_BYTES)
            unpacked.seek(0, os.SEEK_SET)
            return unpacked
        except FileNotFoundError:
            raise AdoptError(f"{path} does not exist.") from None
        except GZIP_FAULTS as error:
            raise AdoptError(f"{path} is damaged or not gzip ({error}). Unpack what is whole: zcat {path} > FILE") from None
        except OSError as error:
            raise AdoptError(f"{path} cannot be read: {error.strerror or error}.") from None
