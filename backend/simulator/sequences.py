"""The requests inside the scheduler and what it tells about its doings: values only."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from enum import StrEnum


class FinishKind(StrEnum):
    """Why a request ended, in SGLang's words."""

    STOP = "stop"
    LENGTH = "length"
    ABORT = "abort"


@dataclass(frozen=True, slots=True)
class Finish:
    """How a request ended; message and status only for aborts."""

    kind: FinishKind
    message: str = ""
    status: int | None = None
    was_waiting: bool = False

    @classmethod
    def by(cls, kind: FinishKind) -> Finish:
        """The usual end of this kind."""
        return cls(kind, "Aborted" if kind is FinishKind.ABORT else "")


@dataclass(slots=True, eq=False)
class Sequence:
    """One request inside the scheduler. Times are of the scheduler's clock, in seconds."""

    rid: str
    prompt_tokens: int
    target_tokens: int
    """Tokens it will generate, cap included."""
    ends_by: FinishKind
    max_new_tokens: int
    arrived_at: float
    prompt_chars: int = 0
    blocks: tuple[int, ...] = ()
    generated: int = 0
    cached_tokens: int = 0
    retractions: int = 0
    admitted_at: float | None = None
    first_token_at: float | None = None
    finished_at: float | None = None
    finish: Finish | None = None
    on_finish: Callable[[Sequence], None] | None = None
    joined_pace: float = 0.0
    """The batch's pace (decoding.py) when this request joined it."""
    joined_generated: int = 0
    ticket: int = 0
    """Which of its stays in the batch this is; 0 outside of it."""


@dataclass(frozen=True, slots=True)
class PrefillReport:
    """What SGLang's "Prefill batch" line tells."""

    new_sequences: int
    new_tokens: int
    cached_tokens: int
    running: int
    queued: int
    pending_tokens: int
    seconds: float


@dataclass(frozen=True, slots=True)
class RetractReport:
    """What the warning about a full KV pool tells."""

    retracted: int
    tokens_gained: int
    ratio_before: float
    ratio_after: float


@dataclass(slots=True)
class Totals:
    """Cumulative counts since the start (or since they were reset)."""

    decoded: int = 0
    """Decoded tokens of requests that left the batch; the first token of a request counts as prefill."""
    prefill_computed: int = 0
    prefill_cached: int = 0
    prefill_busy_us: int = 0
    prefill_passes: int = 0
    retracted: int = 0
    retracted_input: int = 0
    retracted_output: int = 0
    moments: list[float] = field(default_factory=lambda: [0.0] * 6)
    """n, Σb, Σt_us, Σb², Σb·t, Σgenerated over decode steps."""

    def add_prefill(self, new_tokens: int, cached_tokens: int, seconds: float) -> None:
        """A prefill pass begins."""
        self.prefill_computed += new_tokens
        self.prefill_cached += cached_tokens
        self.prefill_busy_us += round(seconds * 1e6)
        self.prefill_passes += 1

    def add_steps(self, steps: float, gained: float, seconds: float, count: int) -> None:
        """`count` requests decoded for so many steps; each got `gained` tokens."""
        moments, micro = self.moments, seconds * 1e6
        moments[0] += steps
        moments[1] += count * steps
        moments[2] += micro
        moments[3] += count * count * steps
        moments[4] += count * micro
        moments[5] += count * gained

    def add_retracted(self, sequence: Sequence) -> None:
        """A request is sent back to the queue."""
        self.retracted += 1
        self.retracted_input += sequence.prompt_tokens
        self.retracted_output += sequence.generated
