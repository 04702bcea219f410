"""How much of the KV pool is kept back for running requests: SGLang's new-token ratio and the room it asks for.

The ratio starts high, falls with each decode step, and is set anew when the pool was full.
"""

from __future__ import annotations

from collections.abc import Iterable

from backend.simulator.decoding import DecodeBatch
from backend.simulator.sequences import Sequence

RETRACT_ROOM_STEPS = 20
_CLIP_NEW_TOKENS = 4096
_START, _FLOOR, _STEPS = 0.7, 0.098, 600


class NewTokenRatio:
    """Share of its remaining tokens that each request is expected to need."""

    def __init__(self) -> None:
        self._value = _START
        self._set_at_step = 0.0

    def at(self, step: float) -> float:
        """The ratio after so many decode steps since the start."""
        return max(_FLOOR, self._value - (_START - _FLOOR) / _STEPS * (step - self._set_at_step))

    def raise_after_retraction(self, batch: DecodeBatch, step: float) -> float:
        """Estimate it from what is left in the batch. Returns the new ratio."""
        running = batch.sequences.values()
        generated = sum(batch.generated_of(sequence) for sequence in running)
        allowed = sum(sequence.max_new_tokens for sequence in running)
        self._value = min(1.0, (generated + RETRACT_ROOM_STEPS * len(batch)) / (allowed + 1))
        self._set_at_step = step
        return self.at(step)


def expected_tokens(sequence: Sequence, generated: int, ratio: float) -> int:
    """What a request will probably still generate."""
    return int(min(sequence.max_new_tokens - generated, _CLIP_NEW_TOKENS) * ratio)


def reserved_tokens(batch: DecodeBatch, ratio: float) -> int:
    """What the running requests will probably still need together."""
    return sum(expected_tokens(one, batch.generated_of(one), ratio) for one in batch.sequences.values())


def retraction_order(batch: DecodeBatch) -> list[Sequence]:
    """Running requests, the first to be retracted (the one with the fewest tokens) last."""
    running: Iterable[Sequence] = batch.sequences.values()
    return sorted(running, key=lambda one: (-batch.generated_of(one), one.prompt_tokens))
