"""Which files a dataset's prompts lie in, and what was in them when the run was created. `lines.py` reads their records."""

from __future__ import annotations

import glob
import gzip
import hashlib
import os
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import IO, Any, Final

from backend.config import DatasetConfig, PromptFile
from backend.prompts.forms import PROMPT_FIELDS

CHUNK_BYTES: Final = 1 << 22
JSONL_ENDINGS: Final = (".jsonl", ".json", ".ndjson", ".jsonl.gz")
PARQUET_ENDINGS: Final = (".parquet",)
MAX_LINE_BYTES: Final = 256 << 20  # what is longer is no prompt, and would have to be held in memory whole
GZIP_FAULTS: Final = (EOFError, gzip.BadGzipFile, zlib.error)


class PromptFileError(Exception):
    """A dataset's prompts cannot be read; the message names dataset and file, says what is wrong and what to do."""


def scan(dataset: DatasetConfig, base: Path) -> list[PromptFile]:
    """Finds, hashes and counts the files of a dataset, in reading order; relative paths start at `base`.

    Raises PromptFileError for a pattern without a match and for a file that is missing, unreadable or of no known form.
    """
    found: list[PromptFile] = []
    seen: set[str] = set()
    for path in expand(dataset, base):
        real = os.path.realpath(path)
        if real in seen:
            raise PromptFileError(
                f"dataset `{dataset.name}`: {path} is named twice in `path`: its prompts would be made twice. "
                "Name each file once and let patterns not overlap."
            )
        seen.add(real)
        found.append(_examine(dataset, path))
    return found


def verify(dataset: DatasetConfig, frozen: Sequence[PromptFile], base: Path) -> None:
    """Compares the files with what they were when the run was created; reads them whole. Raises PromptFileError."""
    for file in frozen:
        path = base / file.path
        try:
            size = path.stat().st_size
            changed = None if size == file.bytes else f"it had {file.bytes:,} bytes and now has {size:,}"
            if changed is None and _sha256(path) != file.sha256:
                changed = "it has the same size and other content"
        except OSError as error:
            raise unreadable(dataset.name, path, error) from error
        if changed is not None:
            raise changed_file(dataset.name, path, changed)


def changed_file(dataset: str, path: Path, what: str) -> PromptFileError:
    """The refusal of a file that is no longer what it was."""
    return PromptFileError(
        f"dataset `{dataset}`: {path} changed since the run was created ({what}). "
        "Restore the file as it was, or create a new run from the new one."
    )


def unreadable(dataset: str, path: Path, error: Exception) -> PromptFileError:
    """The system's refusal in a user's words."""
    if isinstance(error, FileNotFoundError):
        return PromptFileError(f"dataset `{dataset}`: {path} does not exist. Put it there, or correct `path` in the TOML.")
    if isinstance(error, PermissionError):
        return PromptFileError(f"dataset `{dataset}`: {path} may not be read. Give this user the right to (chmod a+r).")
    if isinstance(error, GZIP_FAULTS):
        return PromptFileError(
            f"dataset `{dataset}`: {path} is damaged or not gzip ({error}). Compress it again from its source."
        )
    if isinstance(error, OSError):
        return PromptFileError(f"dataset `{dataset}`: {path} cannot be read ({error.strerror or error}). Check disk and mount.")
    return PromptFileError(f"dataset `{dataset}`: {path} cannot be read ({error}). Make the file again from its source.")


def expand(dataset: DatasetConfig, base: Path) -> Iterator[Path]:
    """The paths that `path` stands for, absolute; those of a pattern in alphabetical order."""
    for pattern in dataset.paths:
        path = Path(os.path.abspath(base / os.path.expanduser(pattern)))
        if path.exists() or not glob.has_magic(pattern):
            yield path
            continue
        matches = [Path(match) for match in sorted(glob.glob(str(path), recursive=True))]
        files = [match for match in matches if not match.is_dir()]
        if not files:
            raise PromptFileError(
                f"dataset `{dataset.name}`: no file matches {path}. Correct `path` in the TOML (relative to its folder)."
            )
        yield from files


def is_parquet(path: Path) -> bool:
    """Whether the name says Parquet."""
    return path.name.lower().endswith(PARQUET_ENDINGS)


def open_lines(path: Path) -> IO[bytes]:
    """A JSONL file as bytes, unpacked where its name ends in .gz. Raises OSError."""
    return gzip.open(path, "rb") if path.name.lower().endswith(".gz") else path.open("rb")  # type: ignore[return-value]


def open_parquet(path: Path) -> Any:
    """A pyarrow ParquetFile that streams its columns in place of loading row groups whole. Raises OSError, ArrowException."""
    import pyarrow.parquet as pq

    return pq.ParquetFile(path, pre_buffer=False, buffer_size=1 << 20)


def check_readable(dataset: DatasetConfig, path: Path) -> None:
    """Raises PromptFileError for a file that cannot hold prompts: a folder, an unknown ending, UTF-16, one JSON array."""
    name = path.name.lower()
    if path.is_dir():
        raise PromptFileError(f"dataset `{dataset.name}`: {path} is a folder. Name the files in it: {path}/*.jsonl")
    if path.exists() and not path.is_file():
        raise PromptFileError(  # reading a pipe waits for ever, reading a device never ends
            f"dataset `{dataset.name}`: {path} is no regular file but a pipe, a socket or a device. Write it to a file first."
        )
    if not name.endswith(JSONL_ENDINGS + PARQUET_ENDINGS):
        raise PromptFileError(
            f"dataset `{dataset.name}`: {path} has none of the known endings "
            f"({', '.join(JSONL_ENDINGS + PARQUET_ENDINGS)}). Convert it to JSONL or Parquet, or narrow the pattern in `path`."
        )
    if is_parquet(path):
        _check_columns(dataset, path)
        return
    with open_lines(path) as lines:
        head = lines.read(4096)
    if head.startswith((b"\xff\xfe", b"\xfe\xff")):
        raise PromptFileError(f"dataset `{dataset.name}`: {path} is UTF-16. Convert it: iconv -f UTF-16 -t UTF-8")
    if head.removeprefix(b"\xef\xbb\xbf").lstrip().startswith(b"["):
        raise PromptFileError(
            f"dataset `{dataset.name}`: {path} is a JSON array. Write one object a line: jq -c '.[]' FILE > FILE.jsonl"
        )


def _check_columns(dataset: DatasetConfig, path: Path) -> None:
    with open_parquet(path) as parquet:
        names = list(parquet.schema_arrow.names)
    prompts = PROMPT_FIELDS if dataset.prompt_field is None else (dataset.prompt_field,)
    if not set(prompts) & set(names):
        raise PromptFileError(
            f"dataset `{dataset.name}`: {path} has no column {' or '.join(prompts)}; its columns are {', '.join(names)}. "
            "Name the right one with prompt_field."
        )
    if dataset.id_field is not None and dataset.id_field not in names:
        raise PromptFileError(
            f"dataset `{dataset.name}`: {path} has no column {dataset.id_field} (id_field); its columns are {', '.join(names)}."
        )


def read_faults(path: Path) -> tuple[type[Exception], ...]:
    """The exceptions by which reading a file of this kind fails."""
    if not is_parquet(path):
        return (OSError, *GZIP_FAULTS)
    import pyarrow as pa

    return (OSError, pa.ArrowException)


def _examine(dataset: DatasetConfig, path: Path) -> PromptFile:
    try:
        check_readable(dataset, path)
        size = path.stat().st_size
        return PromptFile(path=str(path), bytes=size, sha256=_sha256(path), records=_count_records(path))
    except read_faults(path) as error:
        raise unreadable(dataset.name, path, error) from error


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _count_records(path: Path) -> int:
    if is_parquet(path):
        with open_parquet(path) as parquet:
            return int(parquet.metadata.num_rows)
    count, begun = 0, False  # begun: the line that the last chunk cut in two was counted already
    with open_lines(path) as lines:
        while chunk := lines.read(CHUNK_BYTES):
            first, *others = chunk.split(b"\n")
            count += not begun and _has_words(first)
            count += sum(1 for line in others if _has_words(line))
            begun = _has_words(others[-1]) if others else begun or _has_words(first)
    return count


def _has_words(line: bytes) -> bool:
    return bool(line) and not line.isspace()
