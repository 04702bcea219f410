"""What is seen in a finished text when it is made. Facts are stored; what they are worth is the rule's to say, on reading."""

from __future__ import annotations

from collections.abc import Sequence

from backend.outcomes.loops import find_loop
from backend.outcomes.reasoning import (
    SplitText,
    has_closing_mark,
    has_leftover_marks,
    says_nothing,
    split_reasoning,
)
from backend.outcomes.similarity import simhash
from backend.records import Facts


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
        said = answer or ""
        split = SplitText(reasoning, said, bool(tool_calls) or not says_nothing(said) or has_closing_mark(whole))
    else:
        split = split_reasoning(answer if answer is not None else whole)
        if split.reasoning is not None and (not split.reasoning or split.reasoning.isspace()):
            split = SplitText(None, split.answer, None)  # an empty pair of marks is no reasoning
    nothing = says_nothing(split.answer)
    left_over = not nothing and has_leftover_marks(split.answer)
    loop = find_loop(output_ids, whole)
    return Facts(
        answer_tokens=0 if nothing else _answer_tokens(split, whole, completion_tokens, reasoning_tokens),
        reasoning_closed=False if left_over else split.closed,
        repeat_period=loop[0] if loop else None,
        repeat_share=loop[1] if loop else None,
        simhash=simhash(split.answer),
    )


def _answer_tokens(split: SplitText, whole: str, completion_tokens: int, reasoning_tokens: int | None) -> int:
    if split.closed is None:
        return completion_tokens
    if reasoning_tokens:
        return max(1, completion_tokens - reasoning_tokens)
    return max(1, round(completion_tokens * len(split.answer) / max(len(whole), 1)))
