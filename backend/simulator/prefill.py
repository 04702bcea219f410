"""Who is taken from the queue into the next prefill: as many as places, the KV pool and one pass allow, in their order.

How long the pass takes, and what follows, is `batching.py`'s.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

from backend.simulator.pool_reserve import expected_tokens
from backend.simulator.prefix_cache import PrefixCache
from backend.simulator.sequences import Sequence

MAX_PREFILL_TOKENS = 16384


@dataclass(slots=True)
class PrefillBatch:
    """What one prefill consists of."""

    sequences: list[Sequence] = field(default_factory=list)
    new_tokens: int = 0  # to be computed
    cached_tokens: int = 0
    pool_blocks: bool = False  # the next one waits for room in the pool


def take_batch(
    waiting: deque[Sequence], *, places: int, free_tokens: float, ratio: float, alone: bool, cache: PrefixCache, now: float
) -> PrefillBatch:
    """Takes them out of `waiting`. `free_tokens`: of the pool, without what is kept back for those that run; `ratio`: the share
    of its remaining tokens that each is expected to need; `alone`: nobody runs, so the first one is taken whatever it needs."""
    batch = PrefillBatch()
    while waiting and len(batch.sequences) < places:
        sequence = waiting[0]
        total = sequence.prompt_tokens + sequence.generated
        need = total + expected_tokens(sequence, sequence.generated, ratio) + 1
        batch.pool_blocks = need > free_tokens and not (alone and not batch.sequences)
        if batch.pool_blocks or (batch.sequences and batch.new_tokens + total > MAX_PREFILL_TOKENS):
            break
        waiting.popleft()
        cached = cache.match(sequence.blocks, sequence.prompt_chars, sequence.prompt_tokens)
        if sequence.admitted_at is None:
            sequence.admitted_at = now
            sequence.cached_tokens = cached
        cache.remember(sequence.blocks)
        batch.sequences.append(sequence)
        free_tokens -= need
        batch.new_tokens += total - cached
        batch.cached_tokens += cached
    return batch
