"""PURE: what the journal of requests in flight says of one that goes to an API: its money, and the row that it will make."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final
from urllib.parse import quote, unquote

from backend.rows import stored_sample_id

KIND: Final = "api"


@dataclass(frozen=True, slots=True)
class Noted:
    """One request. A supervisor that finds it there, and no row of it, cannot know what it has cost."""

    api: str
    usd: float  # at worst; once it is answered: what it has cost
    dataset: str
    attempt: int
    sample_id: str  # as stored

    def word(self) -> str:
        """In place of a replica's name; without white space."""
        sample = quote(stored_sample_id(self.sample_id), safe="")
        return f"{KIND}:{self.api}:{self.usd:.12f}:{self.dataset}:{self.attempt}:{sample}"


def read_noted(word: str) -> Noted | None:
    """Such a word, read; None for a replica's name."""
    parts = word.split(":", 5)
    if len(parts) != 6 or parts[0] != KIND:
        return None
    try:
        return Noted(parts[1], float(parts[2]), parts[3], int(parts[4]), unquote(parts[5]))
    except ValueError:
        return None
