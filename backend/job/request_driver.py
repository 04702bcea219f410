"""One chat completion over HTTP, and nothing else: the body that is sent, the answer that is read, the faults in three kinds.

Not streamed, because SGLang returns token ids only so. No total time-out: an answer may take hours; what stands still is found
by `stall.py`. Who gets a slot and what becomes of the answer is decided in `slots.py`.
"""

from __future__ import annotations

import email.utils
import json
import math
import re
import time
from dataclasses import dataclass
from typing import Any, Final

import aiohttp
import orjson

from backend.config import SamplingConfig
from backend.job.replica import Endpoint
from backend.records import Json, Prompt

# Statuses that say nothing about the prompt: the same request may succeed later.
RETRIED_STATUSES: Final = frozenset({408, 409, 425, 429, 499, 500, 502, 503, 504, 520, 522, 524, 529})
# Statuses that say that we, not the prompt, are refused.
DENIED_STATUSES: Final = frozenset({401, 402, 403, 404, 405})
DETOKENIZE_TIMEOUT_S: Final = 20.0
ABORT_TIMEOUT_S: Final = 5.0
_WORDS_LIMIT: Final = 2000
_PERIOD: Final = r"\d+(?:\.\d+)? ?(?:ms|[hms])[a-z]*"  # "120ms", "20 seconds", "1m2.5s"
_UNIT_S: Final = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0}
_CHARACTERS_PER_TOKEN: Final = 4  # only where a server reports neither usage nor ids; such rows are marked


class RetryableError(Exception):
    """No answer, and not the prompt's fault. `retry_after_s` is what the server asked for, None where it did not."""

    def __init__(self, words: str, *, retry_after_s: float | None = None) -> None:
        super().__init__(words)
        self.retry_after_s = retry_after_s


class DeniedError(RetryableError):
    """The server refuses us (key, path, balance), whatever the prompt: nothing is to be booked as rejected."""


class RejectedError(Exception):
    """The server refuses this prompt for good; the message holds its words."""


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
    """The JSON of one request.

    A seed is made different for each sample (and the same again for the same sample), so that equal prompts are two samples.
    """
    body: Json = {"model": model, "messages": list(prompt.messages), "stream": False, "rid": rid}
    body |= {"return_token_ids": True, "return_prompt_token_ids": True, "return_meta_info": True}
    body["separate_reasoning"] = False  # the text stays as generated; outcomes.py splits it
    if prompt.tools:
        body["tools"] = list(prompt.tools)
    if sampling.max_new_tokens is not None:
        body["max_tokens"] = sampling.max_new_tokens
    for key in ("temperature", "top_p", "top_k"):
        if (value := getattr(sampling, key)) is not None:
            body[key] = value
    if sampling.seed is not None:
        body["seed"] = sample_seed(sampling.seed, prompt)
    if sampling.chat_template_kwargs:
        body["chat_template_kwargs"] = sampling.chat_template_kwargs
    body |= sampling.extra_body
    try:
        return orjson.dumps(body)
    except (TypeError, orjson.JSONEncodeError):  # lone surrogates and integers beyond 64 bits: exact, but slower
        return json.dumps(body).encode()


def sample_seed(seed: int, prompt: Prompt) -> int:
    """A seed in 0..2**31-1 that depends on the run's seed, the sample and its attempt."""
    mixed = seed & 0xFFFFFFFF
    for byte in f"{prompt.dataset}\0{prompt.sample_id}\0{prompt.turn}\0{prompt.attempt}".encode("utf-8", "surrogatepass"):
        mixed = ((mixed ^ byte) * 0x01000193) & 0xFFFFFFFF  # FNV-1a, 32 bits
    return mixed & 0x7FFFFFFF


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


def fault(status: int, payload: bytes, retry_after: str | None) -> Exception:
    """The exception for a status other than 200."""
    words = f"HTTP {status}: {server_words(payload)}"
    if status in RETRIED_STATUSES or status >= 500:
        return RetryableError(words, retry_after_s=retry_after_s(retry_after, words))
    if status in DENIED_STATUSES:
        return DeniedError(words)
    return RejectedError(words)


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


def server_words(payload: bytes) -> str:
    """What an error body says, without its wrapping; at most 2,000 characters."""
    text = payload.decode("utf-8", "replace")
    try:
        body = json.loads(text)
    except ValueError:
        return text.strip()[:_WORDS_LIMIT] or "(no words)"
    error = body.get("error", body) if isinstance(body, dict) else body
    if isinstance(error, dict):
        error = error.get("message") or error.get("detail") or error
    return (error if isinstance(error, str) else json.dumps(error))[:_WORDS_LIMIT]


def retry_after_s(header: str | None, words: str) -> float | None:
    """How long the server asks to wait: seconds, an HTTP date, or words such as "try again in 120ms"."""
    if header:
        try:
            seconds = float(header)
            return max(0.0, seconds) if math.isfinite(seconds) else None
        except ValueError:
            try:
                return max(0.0, email.utils.parsedate_to_datetime(header).timestamp() - time.time())
            except ValueError:
                return None
    found = re.search(rf"(?:try again|retry) (?:in|after) ((?:{_PERIOD}\s?)+)", words, re.IGNORECASE)
    if not found:
        return None
    parts = re.findall(r"(\d+(?:\.\d+)?) ?(ms|[hms])", found[1], re.IGNORECASE)
    return sum(float(number) * _UNIT_S[unit.lower()] for number, unit in parts)


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
