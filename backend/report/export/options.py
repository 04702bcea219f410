"""What can be asked of an export. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from backend.records import Outcome


class ExportError(Exception):
    """Nothing was exported; the message says why and what to do."""


class Format(StrEnum):
    """How a sample is written."""

    MESSAGES = "messages"  # OpenAI messages, the answer last, its reasoning apart
    CONVERSATIONS = "conversations"  # the same under the name that SpecForge and speculators read
    SHAREGPT = "sharegpt"  # from and value, as ShareGPT has them
    TEXT = "text"  # the whole text as the model saw and made it, special tokens included
    TOKEN_IDS = "token_ids"  # its ids, and which of them the model made


class Flagged(StrEnum):
    """What happens with samples that somebody flagged."""

    LEAVE_OUT = "leave-out"
    KEEP = "keep"
    ONLY = "only"


@dataclass(frozen=True, slots=True)
class ExportOptions:
    """One export."""

    format: Format
    to: Path  # the folder to make
    datasets: tuple[str, ...] = ()  # empty: all
    outcomes: tuple[Outcome, ...] = (Outcome.OK,)
    holdout: float = 0.02  # share of the prompts that are kept apart, 0..1
    parquet: bool = False
    flagged: Flagged = Flagged.LEAVE_OUT
    keep_duplicates: bool = False
    force: bool = False  # an export that lies there already is replaced
    tokenizer: Path | None = None  # for `text`; None: the model's
