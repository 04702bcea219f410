"""An output and the prompt it answers, as a row: what nobody told stays unknown, and is never made up.

Tokens are those that the script's server told, else counted by the model's tokenizer, else estimated and marked so. Where a
finish reason is missing and the answer has as many tokens as the cap allows, the cap ended it; otherwise it is `unknown`.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from backend.job.adoption.outputs import Output, Spoken
from backend.outcomes import SplitText, facts, split_reasoning
from backend.records import Prompt, Row
from backend.tokenizer import ModelTokenizer

ADOPTED: Final = "adopted"  # the source of such rows
UNKNOWN: Final = "unknown"
CHARACTERS_PER_TOKEN: Final = 4  # about, where there is nothing to count with


@dataclass(frozen=True, slots=True)
class Match:
    """An answer that will be a row."""

    prompt: Prompt
    spoken: Spoken
    output: Output | None  # what is told about it; None for a turn before the last one of its output
    at: float  # epoch seconds: when it was made, as far as it is known


def split_answer(spoken: Spoken) -> SplitText:
    """Reasoning and answer: as they stood apart, else by the marks in the text."""
    if spoken.reasoning is not None:
        return SplitText(spoken.reasoning, spoken.content, None)
    split = split_reasoning(spoken.content)
    return split if split.reasoning is None else SplitText(split.reasoning, split.answer.strip(), split.closed)


def is_empty(spoken: Spoken) -> bool:
    """Nothing after the reasoning, and no tool is called."""
    return not spoken.tool_calls and not split_answer(spoken).answer.strip()


def make_rows(
    matches: Sequence[Match], *, cap: int | None, tokenizer: ModelTokenizer | None, finish_reason: str | None, model: str
) -> list[Row]:
    """`cap`: the run's most new tokens. `finish_reason` and `model`: what holds where an output tells none."""
    told = [None if match.output is None else match.output.completion_tokens for match in matches]
    uncounted = [_whole(match.spoken) for match, count in zip(matches, told, strict=True) if count is None]
    counted = iter(tokenizer.counts(uncounted) if tokenizer else [-(-len(text) // CHARACTERS_PER_TOKEN) for text in uncounted])
    rows = []
    for match, count in zip(matches, told, strict=True):
        tokens = next(counted) if count is None else count
        exact = count is not None or tokenizer is not None
        rows.append(_row(match, tokens, exact=exact, cap=cap, finish_reason=finish_reason, model=model))
    return rows


def _row(match: Match, tokens: int, *, exact: bool, cap: int | None, finish_reason: str | None, model: str) -> Row:
    prompt, spoken, output = match.prompt, match.spoken, match.output
    split = split_answer(spoken)
    raw_text = spoken.content if spoken.reasoning is None and not spoken.tool_calls else None
    tool_calls = json.dumps(list(spoken.tool_calls), ensure_ascii=False) if spoken.tool_calls else None
    reasoning_tokens = output.reasoning_tokens if output else None
    ended = output.finish_reason if output else None
    if ended is None:
        ended = "tool_calls" if tool_calls else finish_reason
    if ended is None:
        ended = "length" if exact and cap is not None and tokens >= cap else UNKNOWN
    asked = {"messages": list(prompt.messages)} | ({"tools": list(prompt.tools)} if prompt.tools else {})
    return Row(
        dataset=prompt.dataset,
        sample_id=prompt.sample_id,
        position=prompt.position,
        turn=prompt.turn,
        attempt=1,
        source=ADOPTED,
        model=(output.model if output else None) or model,
        messages=json.dumps(asked, ensure_ascii=False),
        prompt_token_ids=None,
        prompt_tokens=output.prompt_tokens if output else None,
        raw_text=raw_text,
        reasoning=split.reasoning,
        answer=split.answer,
        tool_calls=tool_calls,
        output_ids=None,
        completion_tokens=tokens,
        reasoning_tokens=reasoning_tokens,
        cached_tokens=None,
        finish_reason=ended,
        facts=facts(
            raw_text=raw_text,
            reasoning=split.reasoning,
            answer=split.answer if spoken.reasoning is not None else spoken.content,
            tool_calls=tool_calls,
            output_ids=None,
            completion_tokens=tokens,
            reasoning_tokens=reasoning_tokens,
        ),
        started_at=match.at,
        first_token_at=None,
        finished_at=match.at,
        server_epoch=None,
        cost_usd=None,
        error=None,
        tokens_estimated=not exact,
    )


def _whole(spoken: Spoken) -> str:
    calls = json.dumps(list(spoken.tool_calls), ensure_ascii=False) if spoken.tool_calls else ""
    return (spoken.reasoning or "") + spoken.content + calls
