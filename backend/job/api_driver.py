"""One chat completion from an OpenAI-compatible API over HTTP, streamed: what is sent, how it is read, what faults mean.

The counterpart of `request_driver.py`. A stream is read in chunks and watched for standing still; whatever ends it early says
how far it had come, because that may be billed. What becomes of the answer is decided in `api_courier.py`.
"""

from __future__ import annotations

import asyncio
import json
import re
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import aiohttp
import orjson

from backend.config import ApiConfig, SamplingConfig
from backend.job.api_bill import ApiUsage
from backend.job.api_stream import ApiStream, StreamError, read_usage
from backend.job.chat_body import chat_body
from backend.job.request_faults import (
    DENIED_STATUSES,
    RETRIED_STATUSES,
    DeniedError,
    RejectedError,
    RetryableError,
    retry_after_s,
    server_words,
)
from backend.records import Json, Prompt

LOOKUP_TIMEOUT_S: Final = 10.0
# A stream of single tokens is left alone for so long after each read, so that it does not wake us for each token.
NAP_S: Final = 0.25
QUICK_S: Final = 0.1
NO_NAP_BEFORE_S: Final = 3.0  # a short answer's times are exact
AFTER_DONE_S: Final = 1.0  # for the end of the HTTP answer, once the stream has said [DONE]


@dataclass(frozen=True, slots=True)
class ApiAddress:
    """Where requests to an API go, and who asks."""

    config: ApiConfig
    key: str | None = field(repr=False)

    @property
    def base_url(self) -> str:
        """Without a trailing slash."""
        return self.config.base_url.rstrip("/")

    def headers(self) -> dict[str, str]:
        """For every request."""
        key = {"Authorization": f"Bearer {self.key}"} if self.key else {}
        return {"Content-Type": "application/json", **key}


class TooManyError(RetryableError):
    """HTTP 429: nothing was done. `headers` in lower case."""

    def __init__(self, words: str, *, retry_after_s: float | None, headers: Mapping[str, str]) -> None:
        super().__init__(words, retry_after_s=retry_after_s)
        self.headers = headers


class BrokenError(RetryableError):
    """The answer broke off, or never came after the request was sent: part of it may be billed."""

    def __init__(self, words: str, stream: ApiStream) -> None:
        super().__init__(words)
        self.stream = stream


class OtherModelError(Exception):
    """Another model answers than was asked for."""

    def __init__(self, answered: str, stream: ApiStream) -> None:
        super().__init__(answered)
        self.answered = answered
        self.stream = stream


@dataclass(slots=True)
class Exchange:
    """What is seen of one request while it is under way. Times are of a clock that does not go back, in seconds."""

    stream: ApiStream = field(default_factory=ApiStream)
    sent_at: float = 0.0
    first_at: float | None = None  # the first chunk with anything in it
    first_characters: int = 0  # how much of the text it held
    ended_at: float = 0.0


def api_body(prompt: Prompt, sampling: SamplingConfig, config: ApiConfig) -> bytes:
    """The JSON of one request. `generation.extra_body` is the engine's own; an API has `extra_body` of its own."""
    own: Json = {"stream": True, "stream_options": {"include_usage": True}}
    field_name = config.max_tokens_field
    return chat_body(prompt, sampling, model=config.model, max_tokens_field=field_name, own=own, extra_body=config.extra_body)


async def ask(
    session: aiohttp.ClientSession,
    address: ApiAddress,
    body: bytes,
    exchange: Exchange,
    *,
    is_ours: Callable[[str | None], bool],
    on_accepted: Callable[[Mapping[str, str]], None],
    clock: Callable[[], float] = time.monotonic,
) -> None:
    """Sends one request and reads its whole answer into `exchange`, which stays filled whatever is raised.

    `is_ours(model)`: whether that is the model that was asked for. `on_accepted` hears the headers of HTTP 200.

    Raises:
        TooManyError: 429. RetryableError: another status that may pass, or nobody was reached: nothing was done.
        BrokenError: the connection or the stream broke, or stood still.
        OtherModelError, RejectedError, DeniedError.
    """
    stall_s = address.config.stall_after_s
    exchange.sent_at = clock()
    url = f"{address.base_url}/chat/completions"
    try:
        async with asyncio.timeout(stall_s) as limit, session.post(url, data=body, headers=address.headers()) as response:
            if response.status != 200:
                raise api_fault(response.status, await response.read(), _lower(response.headers))
            on_accepted(_lower(response.headers))
            if response.content_type == "application/json":
                exchange.stream.take(json.loads(await response.read()))
                exchange.first_at, exchange.stream.done = clock(), True
            else:
                await _read(response, exchange, limit, stall_s=stall_s, is_ours=is_ours, clock=clock)
            exchange.stream.finish()
    except StreamError as error:
        raise _fault_in_stream(error, exchange.stream) from error
    except (aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError) as error:
        raise RetryableError(f"no connection: {error}") from error
    except TimeoutError as error:
        if not exchange.stream.done:
            raise BrokenError(f"nothing came for {stall_s:g} s", exchange.stream) from error
        exchange.stream.finish()
    except (aiohttp.ClientError, OSError, ValueError) as error:
        raise BrokenError(f"the answer broke off: {error or type(error).__name__}", exchange.stream) from error
    finally:
        exchange.ended_at = clock()
    _check_whole(exchange.stream, is_ours)


async def _read(
    response: aiohttp.ClientResponse,
    exchange: Exchange,
    limit: asyncio.Timeout,
    *,
    stall_s: float,
    is_ours: Callable[[str | None], bool],
    clock: Callable[[], float],
) -> None:
    stream, loop, read_at = exchange.stream, asyncio.get_running_loop(), clock()
    while data := await response.content.readany():
        before, read_at = read_at, clock()
        if stream.feed(data):
            limit.reschedule(loop.time() + (AFTER_DONE_S if stream.done else stall_s))
            if exchange.first_at is None and stream.has_text:
                exchange.first_at, exchange.first_characters = read_at, stream.characters
        if stream.begun and not is_ours(stream.model):
            raise OtherModelError(stream.model or "", stream)
        if read_at - before < QUICK_S and read_at - exchange.sent_at > NO_NAP_BEFORE_S and not stream.done:
            await asyncio.sleep(NAP_S)


def _check_whole(stream: ApiStream, is_ours: Callable[[str | None], bool]) -> None:
    if not is_ours(stream.model):
        raise OtherModelError(stream.model or "", stream)
    if stream.finish_reason is None:
        raise BrokenError("the answer broke off: its stream ended without a finish_reason", stream)
    if stream.finish_reason in ("error", "abort"):
        raise BrokenError("the API could not finish the answer", stream)


async def look_up_bill(session: aiohttp.ClientSession, address: ApiAddress, generation: str) -> ApiUsage | None:
    """What an answer that broke off has cost, where the API tells by its id (`GET /generation?id=`, as OpenRouter does).

    None where it does not know the answer, or not yet. Raises RejectedError where it has no such place.
    """
    timeout = aiohttp.ClientTimeout(total=LOOKUP_TIMEOUT_S)
    url, params = f"{address.base_url}/generation", {"id": generation}
    try:
        async with session.get(url, params=params, headers=address.headers(), timeout=timeout) as response:
            payload, status = await response.read(), response.status
            found = orjson.loads(payload)
    except orjson.JSONDecodeError:
        raise RejectedError("no such place") from None
    except (aiohttp.ClientError, TimeoutError, OSError):
        return None
    data = found.get("data") if isinstance(found, dict) else None
    if status != 200 or not isinstance(data, dict):
        return None
    usage = {"cost": data.get("total_cost")}
    usage["prompt_tokens"] = data.get("native_tokens_prompt", data.get("tokens_prompt"))
    usage["completion_tokens"] = data.get("native_tokens_completion", data.get("tokens_completion"))
    return read_usage(usage)


def api_fault(status: int, payload: bytes, headers: Mapping[str, str]) -> Exception:
    """The exception for a status other than 200. APIs put the same thing under many of them: the words decide."""
    said = server_words(payload)
    words, text = f"HTTP {status}: {said}", payload[:4000].decode("utf-8", "replace").lower()
    if (
        status in (402, 403, 429)
        and re.search(r"insufficient|quota|credit|billing|balance", text)
        and "try again in" not in text
    ):
        return DeniedError(words)
    if status == 429:
        wait_s = retry_after_s(_retry_after(headers), said)
        return TooManyError(words, retry_after_s=wait_s, headers=headers)
    if status in RETRIED_STATUSES or status >= 500:
        return RetryableError(words, retry_after_s=retry_after_s(_retry_after(headers), said))
    if status == 403 and re.search(r"moderat|flagged|safety|content policy|content_policy", text):
        return RejectedError(words)
    if status in DENIED_STATUSES or (status == 400 and re.search(r"api[ _-]?key", text)):
        return DeniedError(words)
    return RejectedError(words)


def _retry_after(headers: Mapping[str, str]) -> str | None:
    """`retry-after-ms` is the more exact one where both are there."""
    try:
        return str(float(headers["retry-after-ms"]) / 1000)
    except (KeyError, ValueError):
        return headers.get("retry-after")


def _fault_in_stream(error: StreamError, stream: ApiStream) -> Exception:
    """An error after HTTP 200. One about the prompt is final, as its status would be; what was begun may be billed."""
    if error.code is not None and not stream.content and not stream.reasoning:
        fault = api_fault(error.code, json.dumps({"error": {"message": str(error)}}).encode(), {})
        if isinstance(fault, RejectedError | DeniedError | TooManyError):
            return fault
    return BrokenError(f"the API ended the answer: {error}", stream)


def _lower(headers: Mapping[str, Any]) -> dict[str, str]:
    return {name.lower(): str(value) for name, value in headers.items()}
