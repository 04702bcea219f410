"""Writes what is shared as files that replace the former ones whole: whoever opens one meanwhile sees one or the other."""

from __future__ import annotations

import os
import re
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from backend.report.share.page import page
from backend.report.share.paragraph import paragraph
from backend.report.share.png import png
from backend.report.share.snapshot import Snapshot

_MODE: Final = 0o644  # they are made to be read by others
_ODD: Final = re.compile(r"[^A-Za-z0-9._-]+")


@dataclass(frozen=True, slots=True)
class Forms:
    """One snapshot in all its forms."""

    name: str  # of its files, without their ends
    page: bytes
    picture: bytes
    paragraph: str


@dataclass(frozen=True, slots=True)
class SharedFiles:
    """Where they were written."""

    page: Path
    picture: Path
    paragraph: Path


def forms_of(shared: Snapshot) -> Forms:
    """Makes them; nothing is written."""
    return Forms(
        name=_ODD.sub("_", shared.run.name),
        page=page(shared).encode(),
        picture=png(shared),
        paragraph=paragraph(shared),
    )


def write_forms(forms: Forms, folder: Path) -> SharedFiles:
    """Writes NAME.html, NAME.png and NAME.txt into `folder`, which is made if it is not there. Raises OSError."""
    folder.mkdir(parents=True, exist_ok=True)
    files = SharedFiles(*(folder / f"{forms.name}.{end}" for end in ("html", "png", "txt")))
    for path, content in (
        (files.page, forms.page),
        (files.picture, forms.picture),
        (files.paragraph, forms.paragraph.encode()),
    ):
        _replace(path, content)
    return files


def _replace(path: Path, content: bytes) -> None:
    fd, temporary = tempfile.mkstemp(prefix=f".{path.name}.", suffix=".tmp", dir=path.parent)
    try:
        with open(fd, "wb") as file:
            file.write(content)
            os.fchmod(file.fileno(), _MODE)
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise
