"""From facts to outcome: the rule, its threshold values and its version. `queries/setup/outcome.sql` says the same in SQL."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from backend.records import Outcome, Row

# 1: the first one. 2: a loop in a text that ended by itself counts only where it is a good part of the text. Facts seen from
# then on also tell a dominating token as a loop, and a mark of reasoning left in the answer as reasoning not closed.
RULE_VERSION: Final = 2

# An answer of fewer tokens is empty. "42" is a whole answer to many questions, so only what says nothing at all counts: white
# space, punctuation, marks (`reasoning.says_nothing` makes it 0 tokens).
EMPTY_BELOW_TOKENS: Final = 1

# A loop that the cap ended was endless, however late it began. A text that ended by itself may end in a refrain, or in equal
# rows of a table: there the loop has to cover this share of it.
LOOP_MIN_SHARE: Final = 0.2

BAD: Final = frozenset({Outcome.EMPTY, Outcome.THINKING_ONLY, Outcome.DEGENERATE})  # nothing can be learnt from it

RULE_COLUMNS: Final = ("finish_reason", "answer_tokens", "reasoning_closed", "repeat_period", "repeat_share", "tool_calls")


def outcome(
    *,
    finish_reason: str,
    answer_tokens: int | None,
    reasoning_closed: bool | None,
    repeat_period: int | None,
    repeat_share: float | None,
    has_tool_calls: bool,
) -> Outcome:
    """The rule. The first line that holds decides.

    A loop goes before the cap, because a loop ends only by the cap; the cap goes before missing answers, because it is why they
    are missing.
    """
    if finish_reason == "rejected":
        return Outcome.REJECTED
    if repeat_period is not None and (finish_reason == "length" or repeat_share is None or repeat_share >= LOOP_MIN_SHARE):
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
        repeat_share=row.facts.repeat_share,
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
        repeat_share=record["repeat_share"],
        has_tool_calls=record["tool_calls"] is not None,
    )
