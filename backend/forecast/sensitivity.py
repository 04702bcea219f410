"""How long so many tokens take: the arithmetic of the table that asks what longer answers or a slower server would mean."""

from __future__ import annotations


def sensitivity(mean_tokens: float, tokens_per_s: float, total: float) -> float:
    """Seconds for `total` samples of `mean_tokens` completion tokens at this speed (for a token budget: a mean of 1).

    Raises ValueError unless the speed is above 0.
    """
    if tokens_per_s <= 0:
        raise ValueError(f"a speed must be above 0 tokens/s, not {tokens_per_s}")
    return mean_tokens * total / tokens_per_s
