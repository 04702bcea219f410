"""What is seen in a finished text (facts), and what the text is worth (outcome): pure, and versioned.

Facts are stored with each row when it is made. The outcome is a decision list over stored columns, applied on reading, so a
better rule needs no rewriting; `RULE_VERSION` counts its changes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

import numpy as np

from backend.records import Facts, Outcome, Row

RULE_VERSION: Final = 1

# An answer of fewer tokens is empty. "42" is a whole answer to many questions, so only nothing at all counts.
EMPTY_BELOW_TOKENS: Final = 1

# A loop: at least so many equal copies of at most so many tokens, together at least so long, up to the end of the text.
LOOP_MAX_PERIOD_TOKENS: Final = 128
LOOP_MIN_COPIES: Final = 3
LOOP_MIN_TOKENS: Final = 48
CHARACTERS_PER_TOKEN: Final = 4  # where ids are missing, characters are compared in place of tokens

SIMHASH_CHARACTERS: Final = 16_384  # of the beginning; texts that agree so far are near-duplicates anyway
SIMHASH_GRAM: Final = 8  # characters

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

RULE_COLUMNS: Final = ("finish_reason", "answer_tokens", "reasoning_closed", "repeat_period", "tool_calls")


class SplitText(NamedTuple):
    """A generated text taken apart by its marks."""

    reasoning: str | None  # None: no marks
    answer: str
    closed: bool | None  # None: no marks


def outcome(
    *,
    finish_reason: str,
    answer_tokens: int | None,
    reasoning_closed: bool | None,
    repeat_period: int | None,
    has_tool_calls: bool,
) -> Outcome:
    """The rule. The first line that holds decides.

    A loop goes before the cap, because a loop ends only by the cap; the cap goes before missing answers, because it is why they
    are missing.
    """
    if finish_reason == "rejected":
        return Outcome.REJECTED
    if repeat_period is not None:
        return Outcome.DEGENERATE
    if finish_reason == "length":
        return Outcome.TRUNCATED
    if has_tool_calls:
        return Outcome.OK
    if reasoning_closed is False:
        return Outcome.THINKING_ONLY
    if answer_tokens is not None and answer_tokens < EMPTY_BELOW_TOKENS:
        return Outcome.EMPTY if reasoning_closed is None else Outcome.THINKING_ONLY
    return Outcome.OK


def outcome_of(row: Row) -> Outcome:
    """The outcome of a row."""
    return outcome(
        finish_reason=row.finish_reason,
        answer_tokens=row.facts.answer_tokens,
        reasoning_closed=row.facts.reasoning_closed,
        repeat_period=row.facts.repeat_period,
        has_tool_calls=row.tool_calls is not None,
    )


def outcome_of_record(record: Mapping[str, Any]) -> Outcome:
    """The outcome of a stored record; it needs RULE_COLUMNS only."""
    closed = record["reasoning_closed"]
    return outcome(
        finish_reason=record["finish_reason"],
        answer_tokens=record["answer_tokens"],
        reasoning_closed=None if closed is None else bool(closed),
        repeat_period=record["repeat_period"],
        has_tool_calls=record["tool_calls"] is not None,
    )


def facts(
    *,
    raw_text: str | None,
    reasoning: str | None,
    answer: str | None,
    tool_calls: str | None,
    output_ids: Sequence[int] | None,
    completion_tokens: int,
    reasoning_tokens: int | None,
) -> Facts:
    """What is seen in a finished text.

    `reasoning` and `answer` as the server's parser split them; where it gave no reasoning, the marks in the text are used.
    Tokens of the answer are counted where the server tells those of the reasoning, else taken by their share of the text.
    """
    whole = raw_text if raw_text is not None else (reasoning or "") + (answer or "")
    if reasoning and not reasoning.isspace():
        plain = _without_marks(answer or "")
        split = SplitText(reasoning, plain, bool(tool_calls) or not _is_blank(plain) or _has_closing_mark(whole))
    else:
        split = split_reasoning(answer if answer is not None else whole)
        if split.reasoning is not None and _is_blank(split.reasoning):  # an empty pair of marks is no reasoning
            split = SplitText(None, split.answer, None)
    loop = find_loop(output_ids, whole)
    return Facts(
        answer_tokens=_answer_tokens(split, whole, completion_tokens, reasoning_tokens),
        reasoning_closed=split.closed,
        repeat_period=loop[0] if loop else None,
        repeat_share=loop[1] if loop else None,
        simhash=simhash(split.answer),
    )


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


def find_loop(ids: Sequence[int] | None, text: str) -> tuple[int, float] | None:
    """Period in tokens, and share of the text, of a loop that the text ends in; None without one.

    Compares ids, or characters where ids are missing. One last token after the loop is let through: it ends the text.
    """
    sequence: Sequence[Any] = text.rstrip() if ids is None else ids
    unit = CHARACTERS_PER_TOKEN if ids is None else 1
    for end in (len(sequence), len(sequence) - 1):
        period = _loop_period(sequence, end, LOOP_MAX_PERIOD_TOKENS * unit, LOOP_MIN_TOKENS * unit)
        if period:
            covered = period + _equal_run(sequence, end, period)
            return max(1, round(period / unit)), covered / len(sequence)
    return None


def _loop_period(sequence: Sequence[Any], end: int, max_period: int, min_length: int) -> int | None:
    tail = sequence[max(0, end - max(LOOP_MIN_COPIES * max_period, min_length + max_period)) : max(0, end)]
    size = len(tail)
    for period in range(1, min(max_period, size // LOOP_MIN_COPIES) + 1):
        run = max((LOOP_MIN_COPIES - 1) * period, min_length - period)  # so many places equal the one a period before
        if run + period > size or tail[size - 1] != tail[size - 1 - period]:
            continue
        if tail[size - run :] == tail[size - run - period : size - period]:
            return period
    return None


def _equal_run(sequence: Sequence[Any], end: int, period: int) -> int:
    # How many places before `end` equal the one a period earlier: by blocks first, as texts may have megabytes.
    place, block = end, 4096
    while block:
        while place - block >= period and sequence[place - block : place] == sequence[place - block - period : place - period]:
            place -= block
        block //= 4
    return end - place


def simhash(text: str) -> int | None:
    """64 bits, as a signed integer, of which similar texts share most, white space and case aside; None when blank."""
    plain = " ".join(text[: 2 * SIMHASH_CHARACTERS].split()).lower()[:SIMHASH_CHARACTERS]
    if not plain:
        return None
    codes = np.frombuffer(plain.encode("utf-32-le", "surrogatepass"), dtype=np.uint32).astype(np.uint64)
    gram = min(SIMHASH_GRAM, len(codes))
    count = len(codes) - gram + 1
    hashes = np.zeros(count, dtype=np.uint64)
    for offset in range(gram):
        hashes = hashes * np.uint64(0x100000001B3) + codes[offset : offset + count]
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):  # spreads each bit over all 64
        hashes = (hashes ^ (hashes >> np.uint64(shift))) * np.uint64(factor)
    hashes ^= hashes >> np.uint64(31)
    bits = np.unpackbits(hashes.astype("<u8").view(np.uint8).reshape(count, 8), axis=1, bitorder="little")
    majority = bits.sum(axis=0, dtype=np.int64) * 2 > count
    return int(np.packbits(majority, bitorder="little").view("<i8")[0])


def _answer_tokens(split: SplitText, whole: str, completion_tokens: int, reasoning_tokens: int | None) -> int:
    if _is_blank(split.answer):
        return 0
    if split.closed is None:
        return completion_tokens
    if reasoning_tokens:
        return max(1, completion_tokens - reasoning_tokens)
    return max(1, round(completion_tokens * len(split.answer) / max(len(whole), 1)))


def _without_marks(text: str) -> str:
    if len(text) > 1000:  # it is an answer, whatever marks are left in it
        return text
    for opening, closing, _ in REASONING_MARKS:
        text = text.replace(opening, "").replace(closing, "")
    return text


def _has_closing_mark(text: str) -> bool:
    return any(closing in text for _, closing, _ in REASONING_MARKS)


def _is_blank(text: str) -> bool:
    return not text or text.isspace()
