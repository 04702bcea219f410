"""What the simulated model writes: token ids of plausible reasoning and answers, of any length, cheap to cut.

One long stretch of reasoning and one of answers are made once; a text is a slice that starts at a sentence given by the
prompt's hash. Lengths come from lengths.py.
"""

from __future__ import annotations

import random
from bisect import bisect_right
from dataclasses import dataclass
from enum import StrEnum
from functools import cache

from backend.simulator import tokens
from backend.simulator.vocabulary import ADJECTIVES, ANSWER_PATTERNS, NOUNS, REASONING_PATTERNS, VERBS

_STRETCH_TOKENS = 60_000


class TextKind(StrEnum):
    """What becomes of a text."""

    NORMAL = "normal"
    """Reasoning if asked for, an answer, the end token."""
    EMPTY = "empty"
    """The end token at once: content "" with finish_reason stop."""
    UNCLOSED = "unclosed"
    """Thinking that ends (stop) without its closing tag."""
    LOOP = "loop"
    """The same words until the cap."""
    TOOL_CALL = "tool_call"
    """Only a tool call."""
    HUGE = "huge"
    """Megabytes: one paragraph and a number, again and again."""
    LITERAL = "literal"
    """Exactly the given text."""


@dataclass(frozen=True, slots=True)
class TextPlan:
    """A text before it is written: `tokens_wanted` counts the end token and is what the model would write without a cap."""

    kind: TextKind
    tokens_wanted: int
    thinking: bool
    start: int
    """Any number; where in the stretches the text starts."""
    literal: str = ""
    reasoning_share: float = 0.75


@dataclass(frozen=True, slots=True)
class _Stretch:
    ids: list[int]
    sentence_starts: list[int]

    def cut(self, start: int, count: int) -> list[int]:
        first = self.sentence_starts[bisect_right(self.sentence_starts, start % len(self.ids)) - 1]
        piece = self.ids[first : first + count]
        while len(piece) < count:
            # each lap starts one token later, so that a very long text does not repeat exactly
            first = (first + 1) % 997
            piece += self.ids[first : first + count - len(piece)]
        return piece


@cache
def _stretch(reasoning: bool) -> _Stretch:
    rng = random.Random(7 if reasoning else 11)
    patterns = REASONING_PATTERNS if reasoning else ANSWER_PATTERNS
    ids: list[int] = []
    starts: list[int] = []
    while len(ids) < _STRETCH_TOKENS:
        sentence = rng.choice(patterns)
        for mark, words in (("{n}", NOUNS), ("{v}", VERBS), ("{a}", ADJECTIVES)):
            while mark in sentence:
                sentence = sentence.replace(mark, rng.choice(words), 1)
        while "{d}" in sentence:
            sentence = sentence.replace("{d}", str(rng.randrange(2, 999)), 1)
        starts.append(len(ids))
        ids += tokens.encode(sentence + ("\n\n" if rng.random() < 0.12 else " "))
    return _Stretch(ids, starts)


_LOOP = tokens.encode("So the answer is \\boxed{460}. ")


def write(plan: TextPlan, count: int) -> list[int]:
    """The first `count` token ids of the planned text (fewer if it is shorter)."""
    wanted = plan.tokens_wanted
    match plan.kind:
        case TextKind.EMPTY:
            ids = [tokens.END]
        case TextKind.LITERAL | TextKind.TOOL_CALL:
            ids = [*tokens.encode(plan.literal), tokens.END]
        case TextKind.LOOP:
            opening = [tokens.THINK, tokens.NEWLINE] if plan.thinking else []
            ids = (opening + _LOOP * (count // len(_LOOP) + 1))[:count]
        case TextKind.HUGE:
            numbers = range(plan.start % 1000, plan.start % 1000 + (wanted - 1) // 2)
            ids = [token for number in numbers for token in (tokens.PARAGRAPH, tokens.number(number % 1000))]
            ids.append(tokens.END)
        case TextKind.UNCLOSED:
            body = _stretch(True).cut(plan.start, max(wanted - 3, 0))
            ids = [tokens.THINK, tokens.NEWLINE, *body, tokens.END]
        case TextKind.NORMAL:
            ids = _write_normal(plan)
    return ids[:count]


def _write_normal(plan: TextPlan) -> list[int]:
    body_tokens = plan.tokens_wanted - 1
    if not plan.thinking:
        return [*_stretch(False).cut(plan.start, body_tokens), tokens.END]
    body_tokens -= 5
    if body_tokens < 2:
        return [*_stretch(False).cut(plan.start, max(plan.tokens_wanted - 1, 0)), tokens.END]
    reasoning_tokens = min(max(1, round(body_tokens * plan.reasoning_share)), body_tokens - 1)
    return [
        tokens.THINK,
        tokens.NEWLINE,
        *_stretch(True).cut(plan.start, reasoning_tokens),
        tokens.NEWLINE,
        tokens.END_THINK,
        tokens.BLANK_LINE,
        *_stretch(False).cut(plan.start // 3, body_tokens - reasoning_tokens),
        tokens.END,
    ]


def split_reasoning(raw_text: str) -> tuple[str | None, str]:
    """(reasoning, answer) as SGLang's reasoning parser splits; reasoning is None where there was no thinking."""
    if "<think>" not in raw_text:
        return None, raw_text
    text = raw_text.replace("<think>", "", 1).strip()
    reasoning, closed, answer = text.partition("</think>")
    return reasoning, answer.strip() if closed else ""
