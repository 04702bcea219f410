"""One chat completion over HTTP, and nothing else: the body that is sent, the answer that is read.

Not streamed, because SGLang returns token ids only so. No total time-out: an answer may take hours; what stands still is found
by `stall.py`. What a refusal means is told by `request_faults.py`; who gets a slot and what becomes of the answer is decided in
`slots.py`.
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from typing import Any, Final

import aiohttp
import orjson

from backend.config import SamplingConfig
from backend.job.chat_body import chat_body
from backend.job.replica import Endpoint
from backend.job.request_faults import RetryableError, fault, server_words
from backend.records import Json, Prompt

DETOKENIZE_TIMEOUT_S: Final = 20.0
ABORT_TIMEOUT_S: Final = 5.0
_CHARACTERS_PER_TOKEN: Final = 4  # only where a server reports neither usage nor ids; such rows are marked


@dataclass(frozen=True, slots=True)
class Completion:
    """What a server answered. Token counts are None where it did not say."""

    content: str
    reasoning: str | None
    tool_calls: list[Json] | None
    prompt_token_ids: tuple[int, ...] | None
    output_ids: tuple[int, ...] | None
    prompt_tokens: int | None
    completion_tokens: int
    reasoning_tokens: int | None
    cached_tokens: int | None
    finish_reason: str
    first_token_s: float | None  # seconds after the start
    tokens_estimated: bool
    model: str
    stop_token_id: int | None = None  # which id ended the text; `output_ids` ends with it


def request_body(prompt: Prompt, sampling: SamplingConfig, *, model: str, rid: str) -> bytes:
    """The JSON of one request."""
    own: Json = {"stream": False, "rid": rid}
    own |= {"return_token_ids": True, "return_prompt_token_ids": True, "return_meta_info": True}
    own["separate_reasoning"] = False  # the text stays as generated; outcomes.py splits it
    return chat_body(prompt, sampling, model=model, max_tokens_field="max_tokens", own=own, extra_body=sampling.extra_body)


async def complete(session: aiohttp.ClientSession, endpoint: Endpoint, body: bytes) -> Completion:
    """Sends one request and reads its answer.

    Raises:
        RetryableError: 429, 5xx, a broken connection, an abort by the server (even with HTTP 200).
        RejectedError: any other 4xx, with the server's words.
        DeniedError: 401-405: key, path or balance.
    """
    try:
        async with session.post(f"{endpoint.base_url}/v1/chat/completions", data=body, headers=_headers(endpoint)) as response:
            payload = await response.read()
            status, retry_after = response.status, response.headers.get("Retry-After")
    except (TimeoutError, aiohttp.ClientError, OSError) as error:
        raise RetryableError(f"no answer: {error or type(error).__name__}") from error
    if status != 200:
        raise fault(status, payload, retry_after)
    return read_completion(payload)


async def detokenize(session: aiohttp.ClientSession, endpoint: Endpoint, model: str, ids: list[int]) -> str:
    """The text of token ids, by the server's own tokenizer. Raises RetryableError where it cannot be had."""
    body = {"model": model, "tokens": ids, "skip_special_tokens": False}
    timeout = aiohttp.ClientTimeout(total=DETOKENIZE_TIMEOUT_S)
    try:
        async with session.post(
            f"{endpoint.base_url}/detokenize", json=body, headers=_headers(endpoint), timeout=timeout
        ) as response:
            payload, status = await response.read(), response.status
    except (aiohttp.ClientError, TimeoutError, OSError) as error:
        raise RetryableError(f"no answer: {error or type(error).__name__}") from error
    text = _decode(payload).get("text") if status == 200 else None
    if not isinstance(text, str):
        raise RetryableError(f"HTTP {status}: {server_words(payload)}")
    return text


async def abort(session: aiohttp.ClientSession, endpoint: Endpoint, rid: str) -> None:
    """Asks the server to end a request of ours. Raises RetryableError where it cannot be asked."""
    timeout = aiohttp.ClientTimeout(total=ABORT_TIMEOUT_S)
    try:
        async with session.post(
            f"{endpoint.base_url}/abort_request", json={"rid": rid}, headers=_headers(endpoint), timeout=timeout
        ) as response:
            await response.read()
    except (aiohttp.ClientError, TimeoutError, OSError) as error:
        raise RetryableError(f"no answer: {error or type(error).__name__}") from error


def read_completion(payload: bytes) -> Completion:
    """An answer with HTTP 200. Raises RetryableError where it is no finished answer."""
    answer = _mapping(_decode(payload))
    choices = answer.get("choices")
    choice = _mapping(choices[0]) if isinstance(choices, list) and choices else {}
    message = choice.get("message")
    if not isinstance(message, dict):
        raise RetryableError(f"an answer without choices: {server_words(payload)}")
    meta = _mapping(choice.get("meta_info"))
    finish = choice.get("finish_reason") or _finish_type(meta.get("finish_reason")) or "stop"
    if finish == "abort" or _finish_type(meta.get("finish_reason")) == "abort":
        raise RetryableError(f"aborted by the server: {_abort_words(meta.get('finish_reason'))}")
    usage = _mapping(answer.get("usage"))
    content, reasoning = message.get("content") or "", message.get("reasoning_content")
    if not isinstance(content, str) or not isinstance(reasoning, str | None):
        raise RetryableError(f"an answer whose content is no text: {server_words(payload)}")
    output_ids = _ids(choice.get("response_token_ids"))
    # The ids are the tokens; what a server counts has been seen to differ (or to be missing).
    counted = len(output_ids) if output_ids else _first_int(usage.get("completion_tokens"), meta.get("completion_tokens"))
    if counted is None and output_ids is not None:
        counted = 0
    estimate = max(1, (len(content) + len(reasoning or "")) // _CHARACTERS_PER_TOKEN)
    return Completion(
        content=content,
        reasoning=reasoning,
        tool_calls=_objects(message.get("tool_calls")),
        prompt_token_ids=_ids(choice.get("prompt_token_ids")),
        output_ids=output_ids,
        prompt_tokens=_first_int(usage.get("prompt_tokens"), meta.get("prompt_tokens")),
        completion_tokens=estimate if counted is None else counted,
        reasoning_tokens=_first_int(usage.get("reasoning_tokens"), meta.get("reasoning_tokens")),
        cached_tokens=_first_int(_mapping(usage.get("prompt_tokens_details")).get("cached_tokens"), meta.get("cached_tokens")),
        finish_reason=str(finish),
        first_token_s=_number(meta.get("first_token_latency")),
        tokens_estimated=counted is None,
        model=str(answer.get("model") or ""),
        stop_token_id=_first_int(choice.get("matched_stop")),
    )


def _headers(endpoint: Endpoint) -> dict[str, str]:
    key = {"Authorization": f"Bearer {endpoint.api_key}"} if endpoint.api_key else {}
    return {"Content-Type": "application/json", **key}


def _decode(payload: bytes) -> Any:
    try:
        return orjson.loads(payload)
    except orjson.JSONDecodeError:
        try:
            return json.loads(payload)  # lone surrogates: orjson refuses them, a model can make them
        except ValueError as error:
            raise RetryableError(f"an answer that is no JSON: {server_words(payload)}") from error


def _finish_type(reason: Any) -> str | None:
    return reason.get("type") if isinstance(reason, dict) else reason


def _abort_words(reason: Any) -> str:
    return str(reason.get("message") or "no reason given") if isinstance(reason, dict) else "no reason given"


def _mapping(value: Any) -> Json:
    return value if isinstance(value, dict) else {}


def _objects(value: Any) -> list[Json] | None:
    """A list of objects; None for nothing and for anything else."""
    return value if isinstance(value, list) and value and all(isinstance(one, dict) for one in value) else None


def _ids(value: Any) -> tuple[int, ...] | None:
    return tuple(value) if isinstance(value, list) and all(isinstance(one, int) for one in value) else None


def _first_int(*values: Any) -> int | None:
    return next((value for value in values if isinstance(value, int) and not isinstance(value, bool)), None)


def _number(value: Any) -> float | None:
    return value if isinstance(value, int | float) and math.isfinite(value) else None
