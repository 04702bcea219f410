"""Which beginning of a prompt was seen before, in blocks of characters: what a radix cache gives, without the tree."""

from __future__ import annotations

_BLOCK_CHARS = 64
_MAX_BLOCKS = 200_000


class PrefixCache:
    """Remembers the prompts that were prefilled, the oldest blocks leave first."""

    def __init__(self, *, enabled: bool = True) -> None:
        self._enabled = enabled
        self._blocks: dict[int, None] = {}

    @staticmethod
    def blocks_of(prompt: str) -> tuple[int, ...]:
        """One number per full block, each standing for everything up to its end."""
        chain = 0
        blocks = []
        for end in range(_BLOCK_CHARS, len(prompt) + 1, _BLOCK_CHARS):
            chain = hash((chain, prompt[end - _BLOCK_CHARS : end]))
            blocks.append(chain)
        return tuple(blocks)

    def match(self, blocks: tuple[int, ...], prompt_chars: int, prompt_tokens: int) -> int:
        """Cached tokens at the beginning of a prompt; at least its last token is always computed."""
        if not self._enabled or not blocks:
            return 0
        count = 0
        for block in blocks:
            if block not in self._blocks:
                break
            count += 1
        return min(prompt_tokens - 1, prompt_tokens * count * _BLOCK_CHARS // max(prompt_chars, 1))

    def remember(self, blocks: tuple[int, ...]) -> None:
        if not self._enabled:
            return
        for block in blocks:
            self._blocks.pop(block, None)
            self._blocks[block] = None
        while len(self._blocks) > _MAX_BLOCKS:
            del self._blocks[next(iter(self._blocks))]

    def clear(self) -> None:
        self._blocks.clear()
