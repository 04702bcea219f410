"""A dataset's prompts in file order, lazily, each with an id that is the same on every pass.

Memory does not grow with the prompts except for 8 or 12 bytes of digest each (about 90 bytes as Python holds them), by which
repeated ids and equal prompts get their occurrence numbers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from decimal import Decimal
from hashlib import blake2b
from itertools import islice
from json.encoder import encode_basestring_ascii
from pathlib import Path
from typing import Any, Final
from uuid import UUID

from backend.config import DatasetConfig, PromptFile, Turns
from backend.prompts.files import changed_file, check_readable, expand, read_faults, unreadable
from backend.prompts.forms import (
    PROMPT_FIELDS,
    Conversation,
    FormError,
    canonical,
    conversation,
    has_instruction,
    plain_text,
    shortened,
)
from backend.prompts.lines import Record, read_records
from backend.prompts.turns import turn_count
from backend.records import Json, Prompt
from backend.rows import is_utf8

ID_FIELDS: Final = ("id", "uuid", "task_id", "sample_id", "primary_id")
MAX_ID_CHARS: Final = 512  # what calls itself an id and is longer is text: a hash is taken
_NO_ID: Final = frozenset(ID_FIELDS).isdisjoint


@dataclass(frozen=True, slots=True)
class BadLine:
    """A record that holds no prompt: counted, named and passed over."""

    file: str
    line: int  # from 1; of a Parquet file the row
    reason: str


class PromptReader:
    """Iterates `Prompt | BadLine` over the files of a dataset. Each pass starts anew and yields the same ids."""

    def __init__(self, dataset: DatasetConfig, files: Sequence[PromptFile], base: Path) -> None:
        self._dataset = dataset
        self._files = files
        self._base = base
        fields = PROMPT_FIELDS if dataset.prompt_field is None else (dataset.prompt_field,)
        ids = ID_FIELDS if dataset.id_field is None else (dataset.id_field,)
        self._columns = tuple(dict.fromkeys((*ids, *fields, "tools", "system")))

    def __iter__(self) -> Iterator[Prompt | BadLine]:
        return self.iter()

    def iter(self, done: Callable[[str], bool] | None = None) -> Iterator[Prompt | BadLine]:
        """One pass. Prompts whose sample id is `done` are left out and keep their position; with turns = "all" a
        conversation is left out once all its turns are done, else its first turn is yielded (`next_turn` leads on).

        Raises PromptFileError when a file is missing, unreadable or no longer as long as it was.
        """
        assigner = _IdAssigner(self._dataset.id_field)
        position = 0
        for file in self._files:
            for line, record in self._records(file):
                if isinstance(record, str):
                    yield BadLine(file.path, line, record)
                    continue
                try:
                    prompt = self._prompt(record, assigner, done, position)
                except FormError as error:
                    yield BadLine(file.path, line, str(error))
                    continue
                position += 1
                if prompt is not None:
                    yield prompt

    def _prompt(
        self, record: Record, assigner: _IdAssigner, done: Callable[[str], bool] | None, position: int
    ) -> Prompt | None:
        """None: it is done already. Raises FormError."""
        every_turn = self._dataset.turns is Turns.ALL
        field = self._dataset.prompt_field
        # An own id gets its occurrence number before the prompt is looked at, so that a pass which skips what is done
        # (without looking at it) gives the same numbers as one which does not.
        sample_id = assigner.from_record(record)
        if sample_id is None and (text := plain_text(record, field)) is not None:
            sample_id = assigner.from_text(text)
        if sample_id is not None and done is not None and not every_turn and done(sample_id):
            return None
        asked = conversation(record, field, all_turns=every_turn)
        if sample_id is None:
            sample_id = assigner.from_prompt(asked)
        elif not asked.is_text:
            canonical(asked)
        if done is not None and every_turn and all(done(f"{sample_id}/t{k}") for k in range(turn_count(asked.later))):
            return None
        if done is not None and not every_turn and done(sample_id):
            return None
        return Prompt(
            dataset=self._dataset.name,
            position=position,
            sample_id=f"{sample_id}/t0" if every_turn else sample_id,
            messages=self._with_system_prompt(asked.messages),
            tools=asked.tools,
            later_turns=asked.later,
        )

    def _with_system_prompt(self, messages: tuple[Json, ...]) -> tuple[Json, ...]:
        text = self._dataset.system_prompt
        if text is None or has_instruction(messages):
            return messages
        return ({"role": "system", "content": text}, *messages)

    def _records(self, file: PromptFile) -> Iterator[tuple[int, Record | str]]:
        path = self._base / file.path
        try:
            size = path.stat().st_size
            if size != file.bytes:
                raise changed_file(self._dataset.name, path, f"it had {file.bytes:,} bytes and now has {size:,}")
            yield from read_records(path, self._columns)
        except read_faults(path) as error:
            raise unreadable(self._dataset.name, path, error) from error


def preview(dataset: DatasetConfig, base: Path, n: int = 3) -> list[Prompt | BadLine]:
    """The first `n` prompts or bad lines, without reading the files whole. Raises PromptFileError."""
    files = []
    for path in expand(dataset, base):
        try:
            check_readable(dataset, path)
            files.append(PromptFile(path=str(path), bytes=path.stat().st_size, sha256="", records=0))
        except read_faults(path) as error:
            raise unreadable(dataset.name, path, error) from error
    return list(islice(PromptReader(dataset, files, base), n))


class _IdAssigner:
    """Sample ids in the order of reading: the record's own or a hash, the second of the same becomes `<id>#2`."""

    def __init__(self, id_field: str | None) -> None:
        self._id_field = id_field
        self._seen: dict[bytes, int] = {}  # digest of an id → how often it was wanted

    def from_record(self, record: Record) -> str | None:
        """The record's own id; None without one. Raises FormError where `id_field` names one that is not there."""
        if self._id_field is not None:
            value = record.get(self._id_field)
            text = as_id(value)
            if text is None:
                raise FormError(
                    f"`{self._id_field}` (id_field) must be a short text or a whole number, found {shortened(value)}"
                )
            return self._numbered(text)
        if _NO_ID(record):
            return None
        for field in ID_FIELDS:
            if field in record and (text := as_id(record[field])) is not None:
                return self._numbered(text)
        return None

    def from_prompt(self, asked: Conversation) -> str:
        """An id made of the prompt; the run's system prompt has no part in it. Raises FormError for what is no JSON."""
        return self._hashed(canonical(asked))

    def from_text(self, text: str) -> str:
        """As `from_prompt` for a prompt that is one text (the same id, in a quarter of the time)."""
        return self._hashed(f'[[{{"content":{encode_basestring_ascii(text)},"role":"user"}}],null,[]]')

    def _hashed(self, content: str) -> str:
        digest = blake2b(content.encode(), digest_size=12).digest()
        return self._numbered("h" + digest.hex(), digest)

    def _numbered(self, text: str, key: bytes | None = None) -> str:
        key = key or _digest(text)
        count = self._seen.get(key, 0) + 1
        self._seen[key] = count
        if count == 1:
            return text
        while True:
            candidate = f"{text}#{count}"
            taken = _digest(candidate)
            if taken not in self._seen:  # a dataset may have ids that end in #2 by themselves
                self._seen[taken] = 1
                return candidate
            count += 1
            self._seen[key] = count


def _digest(text: str) -> bytes:
    if len(text) == 25 and text[0] == "h":  # the hash of a prompt (or an id that looks like one) is its own digest
        with suppress(ValueError):
            if (digest := bytes.fromhex(text[1:])).hex() == text[1:]:
                return digest
    return blake2b(text.encode(), digest_size=8).digest()


def as_id(value: Any) -> str | None:
    """A record's value as an id, as text; None for what is none."""
    if isinstance(value, str):
        return value if 0 < len(value) <= MAX_ID_CHARS and is_utf8(value) else None
    if isinstance(value, bool):
        return None
    if isinstance(value, int):
        return str(value) if value.bit_length() <= 1024 else None
    if isinstance(value, UUID):
        return str(value)
    if isinstance(value, Decimal) and value == value.to_integral_value():  # Parquet's integers beyond 64 bits
        return str(int(value))
    return None
