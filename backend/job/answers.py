"""From a server's answer to the row that is kept: the text taken apart, its facts, and what a conversation goes on with.

The text is asked for unsplit, so `raw_text` is what the token ids decode to. Where a server took it apart all the same (tool
calls, formats with channels), the ids are decoded by the server again.
"""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass, replace
from typing import Final

import aiohttp

from backend.job.replica import Endpoint
from backend.job.request_driver import Completion, detokenize
from backend.job.request_faults import RetryableError
from backend.outcomes import REASONING_MARKS, SplitText, facts, split_reasoning
from backend.records import Facts, Json, Prompt, Row

LOCAL: Final = "local"
REJECTED: Final = "rejected"
# Facts of a text below this take less time than handing it to a thread.
INLINE_CHARACTERS: Final = 4_000


@dataclass(frozen=True, slots=True)
class Answer:
    """A row to keep, and what follows from it."""

    row: Row
    message: Json | None  # the assistant message; None for a rejected prompt
    shows_opened_reasoning: bool = False  # it closes a reasoning that it did not open: the chat template does


async def read_answer(
    session: aiohttp.ClientSession,
    prompt: Prompt,
    completion: Completion,
    endpoint: Endpoint,
    *,
    started_at: float,
    finished_at: float,
    opened: bool,
) -> Answer:
    """The answer to keep. Times in epoch seconds; `opened`: this dataset's chat template opens the reasoning."""
    raw_text: str | None = completion.content
    split = SplitText(completion.reasoning, completion.content, None)
    if completion.reasoning or completion.tool_calls:
        raw_text = await _raw_text(session, endpoint, completion)
    else:
        split = split_reasoning(completion.content)
        if opened and split.closed is None and not split.reasoning:
            split = SplitText(completion.content, "", False)
    tool_calls = json.dumps(completion.tool_calls, ensure_ascii=False) if completion.tool_calls else None

    def see() -> Facts:
        return facts(
            raw_text=raw_text,
            reasoning=split.reasoning,
            answer=split.answer,
            tool_calls=tool_calls,
            output_ids=completion.output_ids,
            completion_tokens=completion.completion_tokens,
            reasoning_tokens=completion.reasoning_tokens,
        )

    seen = see() if len(completion.content) < INLINE_CHARACTERS else await asyncio.to_thread(see)
    answer = split.answer.strip() if split.reasoning is not None else split.answer
    row = replace(
        _unanswered(prompt, completion.model, endpoint, completion.finish_reason, (started_at, finished_at)),
        prompt_token_ids=completion.prompt_token_ids,
        prompt_tokens=completion.prompt_tokens,
        raw_text=raw_text,
        reasoning=split.reasoning,
        answer=answer,
        tool_calls=tool_calls,
        output_ids=completion.output_ids,
        completion_tokens=completion.completion_tokens,
        reasoning_tokens=completion.reasoning_tokens,
        cached_tokens=completion.cached_tokens,
        facts=seen,
        first_token_at=None if completion.first_token_s is None else started_at + completion.first_token_s,
        tokens_estimated=completion.tokens_estimated,
    )
    message: Json = {"role": "assistant", "content": answer}
    if completion.tool_calls:
        message["tool_calls"] = completion.tool_calls
    return Answer(row, message, completion.reasoning is None and _starts_inside_reasoning(completion.content, split))


def rejected_answer(
    prompt: Prompt, model: str, endpoint: Endpoint, *, started_at: float, finished_at: float, words: str
) -> Answer:
    """A prompt that no server will answer, with the server's words."""
    return Answer(replace(_unanswered(prompt, model, endpoint, REJECTED, (started_at, finished_at)), error=words), None)


def message_of(row: Row) -> Json:
    """The assistant message of a durable row, as the next turn of its conversation sees it: without the reasoning."""
    message: Json = {"role": "assistant", "content": row.answer or ""}
    if row.tool_calls:
        message["tool_calls"] = json.loads(row.tool_calls)
    return message


def _unanswered(prompt: Prompt, model: str, endpoint: Endpoint, finish_reason: str, times: tuple[float, float]) -> Row:
    """What a row says of its request, before anything of an answer. `times`: when it started and finished."""
    return Row(
        dataset=prompt.dataset,
        sample_id=prompt.sample_id,
        position=prompt.position,
        turn=prompt.turn,
        attempt=prompt.attempt,
        source=LOCAL,
        model=model,
        messages=_messages(prompt),
        prompt_token_ids=None,
        prompt_tokens=None,
        raw_text=None,
        reasoning=None,
        answer=None,
        tool_calls=None,
        output_ids=None,
        completion_tokens=0,
        reasoning_tokens=None,
        cached_tokens=None,
        finish_reason=finish_reason,
        facts=Facts(),
        started_at=times[0],
        first_token_at=None,
        finished_at=times[1],
        server_epoch=_epoch(endpoint),
        cost_usd=None,
        error=None,
    )


async def _raw_text(session: aiohttp.ClientSession, endpoint: Endpoint, completion: Completion) -> str | None:
    if completion.output_ids is None:
        return None
    ids = list(completion.output_ids)
    if completion.stop_token_id is not None and ids and ids[-1] == completion.stop_token_id:
        ids.pop()
    try:
        return await detokenize(session, endpoint, completion.model, ids)
    except RetryableError:  # older servers cannot; the ids themselves are kept
        return None


def _messages(prompt: Prompt) -> str:
    asked: Json = {"messages": list(prompt.messages)}
    if prompt.tools:
        asked["tools"] = list(prompt.tools)
    return json.dumps(asked, ensure_ascii=False)


def _epoch(endpoint: Endpoint) -> str:
    return f"{endpoint.replica}:{endpoint.launch}"


def _starts_inside_reasoning(text: str, split: SplitText) -> bool:
    head = text[:200].lstrip()
    return split.closed is True and not any(head.startswith(opening) for opening, *_ in REASONING_MARKS)
