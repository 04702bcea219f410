"""Reasoning and answer, told apart by the marks that models put around their reasoning, and what says nothing at all."""

from __future__ import annotations

import re
from typing import Final, NamedTuple

# How models mark their reasoning: opening mark, closing mark, and whether the opening one may stand in the prompt, so that
# only the closing one is generated.
REASONING_MARKS: Final = (
    ("<think>", "</think>", True),
    ("<seed:think>", "</seed:think>", True),
    ("[THINK]", "[/THINK]", False),
    ("◁think▷", "◁/think▷", True),
    ("<thinking>", "</thinking>", False),
    ("<reasoning>", "</reasoning>", False),
    ("<|channel|>analysis<|message|>", "<|channel|>final<|message|>", False),
)
# Tokens that end a text and that a server without `skip_special_tokens` leaves in it.
END_MARKS: Final = ("<|im_end|>", "<|endoftext|>", "<|eot_id|>", "<|end|>", "<|return|>", "</s>", "<eos>", "<pad>")
NOTHING_CHARACTERS: Final = ".…,;:-–—_*#"
LONGEST_NOTHING: Final = 400  # characters, white space aside: what is longer says something

_MARKS: Final = tuple(mark for opening, closing, _ in REASONING_MARKS for mark in (opening, closing))
_FENCED: Final = re.compile(r"```.*?(?:```|\Z)", re.DOTALL)
_ALONE: Final = re.compile(
    rf"^[ \t]*(?:{'|'.join(map(re.escape, _MARKS))})[ \t]*$|\A\s*(?:{'|'.join(map(re.escape, _MARKS))})"
    rf"|(?:{'|'.join(map(re.escape, _MARKS))})\s*\Z",
    re.MULTILINE,
)


class SplitText(NamedTuple):
    """A generated text taken apart by its marks."""

    reasoning: str | None  # None: no marks
    answer: str
    closed: bool | None  # None: no marks


def split_reasoning(text: str) -> SplitText:
    """Reasoning and answer by the marks in the text. Without a closing mark all that follows the opening one is reasoning."""
    head = text[:200].lstrip()
    for opening, closing, may_be_in_prompt in REASONING_MARKS:
        opened = head.startswith(opening)
        end = text.find(closing) if opened or may_be_in_prompt else -1
        if end < 0 and not opened:
            continue
        start = text.index(opening) + len(opening) if opened else 0
        if end < 0:
            return SplitText(text[start:], "", False)
        return SplitText(text[start:end], text[end + len(closing) :], True)
    return SplitText(None, text, None)


def has_leftover_marks(answer: str) -> bool:
    """Whether a mark of reasoning stands in an answer where a model puts one: at its beginning or end, or alone on a line.

    An answer may speak of marks, in a sentence or in a fenced block: that is none left over.
    """
    if not any(mark in answer for mark in _MARKS):
        return False
    return _ALONE.search(_FENCED.sub("", answer)) is not None


def has_closing_mark(text: str) -> bool:
    """Whether some reasoning is closed in it."""
    return any(closing in text for _, closing, _ in REASONING_MARKS)


def says_nothing(text: str) -> bool:
    """Whether an answer holds nothing but white space, marks and punctuation."""
    if not text or text.isspace():
        return True
    if len(text) > 4 * LONGEST_NOTHING:
        return False
    for mark in (*_MARKS, *END_MARKS):
        text = text.replace(mark, "")
    rest = "".join(text.split())
    return len(rest) <= LONGEST_NOTHING and not rest.strip(NOTHING_CHARACTERS)
