"""PURE: which output answers which prompt: by the sample's id, else by the prompt itself.

An id alone is believed where the output does not tell its prompt; where it does, both must agree, because scripts number their
lines from 0 and so does everybody's dataset. Prompts are equal when their messages are: role, text and tool calls of each,
nothing trimmed. The dataset's own system prompt has no part in it, as scripts send theirs or none. The second of two equal
prompts gets the second of their answers.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from hashlib import blake2b
from itertools import chain
from typing import Final

from backend.prompts.forms import INSTRUCTIONS
from backend.records import Json

DIGEST_BYTES: Final = 12

_canonical = json.JSONEncoder(sort_keys=True, separators=(",", ":")).encode


def prompt_digest(messages: Sequence[Json], system_prompt: str | None) -> bytes:
    """Equal for equal prompts, with and without the dataset's system prompt."""
    first = messages[0] if messages else {}
    if system_prompt is not None and first.get("role") in INSTRUCTIONS and _text(first.get("content")) == system_prompt:
        messages = messages[1:]
    said = [[m.get("role"), _text(m.get("content")), m.get("tool_calls") or None] for m in messages]
    return blake2b(_canonical(said).encode("ascii"), digest_size=DIGEST_BYTES).digest()


class Outputs:
    """Numbered outputs that wait for their prompts."""

    def __init__(self) -> None:
        self._waiting: dict[int, tuple[str | None, bytes | None]] = {}  # number → id and prompt, as far as they are told
        self._by_id: dict[str, list[int]] = {}
        self._by_prompt: dict[bytes, list[int]] = {}
        self._answered_ids: set[str] = set()
        self._answered_prompts: set[bytes] = set()

    def add(self, number: int, sample_id: str | None, prompt: bytes | None) -> None:
        """One more, in the order of reading."""
        self._waiting[number] = sample_id, prompt
        if sample_id is not None:
            self._by_id.setdefault(sample_id, []).append(number)
        if prompt is not None:
            self._by_prompt.setdefault(prompt, []).append(number)

    def take(self, sample_id: str, prompt: bytes) -> int | None:
        """The output that answers a prompt, the first of several; None without one."""
        named = (n for n in self._by_id.get(sample_id, ()) if n in self._waiting and self._waiting[n][1] in (None, prompt))
        same = (n for n in self._by_prompt.get(prompt, ()) if n in self._waiting)
        number = next(chain(named, same), None)
        if number is not None:
            del self._waiting[number]
            self._answered_ids.add(sample_id)
            self._answered_prompts.add(prompt)
        return number

    def left(self) -> Iterator[tuple[int, bool]]:
        """The outputs that no prompt took, and whether another one was taken in their place."""
        for number, (sample_id, prompt) in self._waiting.items():
            yield number, sample_id in self._answered_ids if prompt is None else prompt in self._answered_prompts


def _text(content: object) -> object:
    """Parts that are only text say the same as the text."""
    if isinstance(content, list) and content and all(isinstance(p, dict) and p.get("type") == "text" for p in content):
        return "".join(str(part.get("text", "")) for part in content)
    return "" if content is None else content
