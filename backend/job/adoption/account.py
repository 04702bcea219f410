"""What became of each line of the files to adopt: counted, the first of a kind in words, all of them written down if asked."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from types import TracebackType
from typing import IO, Final

from backend.job.adoption.output_files import AdoptError

KEPT: Final = 5  # of each fate, in words


class Fate(StrEnum):
    """What became of an output."""

    ADOPTED = "adopted"
    FINISHED = "finished"  # its sample is finished already: by the run, or by an adoption before
    REPLACED = "replaced"  # its sample was adopted or made once, and somebody asked for it to be made again
    DUPLICATE = "duplicate"  # another output answers the same sample
    UNMATCHED = "unmatched"  # no prompt of the dataset has its id or its text
    EMPTY = "empty"  # no answer after the reasoning: the run makes it
    ERROR = "error"  # it tells of a failed request
    BROKEN = "broken"  # it cannot be read


WORDS: Final = {
    Fate.ADOPTED: "adopted",
    Fate.FINISHED: "of samples that are finished already",
    Fate.REPLACED: "of samples that somebody wants to be made again",
    Fate.DUPLICATE: "duplicates of others",
    Fate.UNMATCHED: "without a prompt in this dataset",
    Fate.EMPTY: "without an answer, left for the run to make",
    Fate.ERROR: "that tell of an error, left for the run to make",
    Fate.BROKEN: "that cannot be read",
}


@dataclass(frozen=True, slots=True)
class Finding:
    """What became of one output, for people."""

    fate: Fate
    place: str  # file:line
    words: str


class Account:
    """The report of an adoption, as it grows."""

    def __init__(self, written_to: Path | None = None) -> None:
        """`written_to`: a file to make, with a line of JSON for each output that was not adopted."""
        self.counts: Counter[Fate] = Counter()
        self.findings: list[Finding] = []
        self.turns = 0  # rows, of which a conversation has several
        self.completion_tokens = 0
        self.estimated = 0  # rows whose tokens are estimated by their characters
        self.unknown_ends = 0  # rows of which nobody told how they ended
        self.samples_after = 0  # finished samples of the dataset, as they count now
        self._path = written_to
        self._file: IO[str] | None = None

    def __enter__(self) -> Account:
        """Raises AdoptError where its file is there already or cannot be made."""
        if self._path is not None:
            try:
                self._file = self._path.open("x", encoding="utf-8")
            except FileExistsError:
                raise AdoptError(f"{self._path} is there already. Name another file for the report.") from None
            except OSError as error:
                raise AdoptError(f"{self._path} cannot be written: {error.strerror}.") from None
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if self._file is not None:
            self._file.close()

    def note(self, fate: Fate, place: str, words: str) -> None:
        """One output that was not adopted."""
        self.counts[fate] += 1
        if self.counts[fate] <= KEPT:
            self.findings.append(Finding(fate, place, words))
        if self._file is not None:
            self._file.write(json.dumps({"fate": fate.value, "place": place, "words": words}) + "\n")

    @property
    def outputs(self) -> int:
        """Lines that were not blank."""
        return self.counts.total()
