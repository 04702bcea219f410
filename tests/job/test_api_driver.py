"""Every way in which an API says no, breaks off or stands still has one meaning, read at the wire."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import aiohttp
import orjson
import pytest

from backend.config import ApiConfig, SamplingConfig
from backend.config.shape import MaxTokensField
from backend.job.api_driver import (
    ApiAddress,
    BrokenError,
    Exchange,
    OtherModelError,
    TooManyError,
    api_body,
    api_fault,
    ask,
    look_up_bill,
)
from backend.job.request_faults import DeniedError, RejectedError, RetryableError
from backend.records import Prompt
from backend.simulator.lengths import LengthRule
from backend.simulator.server import SimulatedServer
from backend.simulator.settings import Profile, Settings

PROMPT = Prompt("A", 0, "A-0", ({"role": "user", "content": "What is 2+2? " * 10},))


@asynccontextmanager
async def api(
    *, faults: Mapping[str, str | None] | None = None, key: str | None = None, **fields: Any
) -> AsyncIterator[tuple[SimulatedServer, ApiAddress, aiohttp.ClientSession]]:
    """The simulator's API in this event loop, and the address of it."""
    own = {"mean": 200, "stall_after_s": 5.0, "given_key": key} | fields
    settings = Settings(
        port=0, speed=50, profile=Profile.API, api_key=key, chunk_tokens=25, rules=(LengthRule(mean=own["mean"], log_sd=0),),
        faults=tuple((faults or {}).items()),
    )  # fmt: skip
    async with SimulatedServer(settings) as server, aiohttp.ClientSession() as session:
        config = ApiConfig(base_url=f"{server.url}/v1/", model="sim/model", stall_after_s=own["stall_after_s"])
        yield server, ApiAddress(config, own["given_key"]), session


async def asked(address: ApiAddress, session: aiohttp.ClientSession, exchange: Exchange | None = None) -> Exchange:
    exchange = exchange or Exchange()
    body = api_body(PROMPT, SamplingConfig(max_new_tokens=1_000), address.config)
    await ask(
        session, address, body, exchange, is_ours=lambda model: model in (None, "sim/model"), on_accepted=lambda headers: None
    )
    return exchange


async def test_an_answer_is_read_whole_with_its_times_its_usage_and_its_cost() -> None:
    async with api(key="a-key") as (server, address, session):
        exchange = await asked(address, session)
        await asyncio.sleep(0)
        charge = next(iter(server.bill.charges.values()))
    stream = exchange.stream
    assert stream.content
    assert stream.reasoning
    assert (stream.model, stream.provider, stream.finish_reason) == ("sim/model", "Simulated Inference", "stop")
    assert stream.usage.cost_usd == float(charge.usd)
    assert stream.usage.completion_tokens == charge.completion_tokens
    assert exchange.first_at is not None
    assert exchange.sent_at < exchange.first_at < exchange.ended_at


@pytest.mark.parametrize(
    ("fault", "argument", "kind", "words"),
    [
        ("http-401", None, DeniedError, "HTTP 401: Incorrect API key"),
        ("http-402", None, DeniedError, "HTTP 402: Insufficient credits"),
        ("flagged-403", None, RejectedError, "HTTP 403: Your input was flagged"),
        ("reject-400", None, RejectedError, "HTTP 400: The simulator was told"),
        ("http-500", None, RetryableError, "HTTP 500"),
        ("http-503", None, RetryableError, "HTTP 503"),
        ("http-429", None, TooManyError, "HTTP 429"),
        ("disconnect", None, BrokenError, "broke off"),
        ("cut-stream", None, BrokenError, "broke off"),
        ("stream-error", None, BrokenError, "the provider went away|The provider went away"),
        ("other-model", None, OtherModelError, "somebody/else"),
    ],
)
async def test_a_fault_has_its_kind_and_the_apis_words(
    fault: str, argument: str | None, kind: type[Exception], words: str
) -> None:
    async with api(faults={fault: argument}) as (_, address, session):
        with pytest.raises(kind, match=words) as caught:
            await asked(address, session)
    assert type(caught.value) is kind


async def test_a_wrong_key_is_denied_and_never_shown() -> None:
    async with api(key="right", given_key="sk-wrong") as (_, address, session):
        with pytest.raises(DeniedError) as caught:
            await asked(address, session)
    assert "sk-wrong" not in f"{caught.value}{caught.value!r}{address!r}"


async def test_who_is_not_there_has_done_nothing() -> None:
    address = ApiAddress(ApiConfig(base_url="http://127.0.0.1:9/v1", model="m"), None)
    async with aiohttp.ClientSession() as session:
        with pytest.raises(RetryableError, match="no connection") as caught:
            await asked(address, session)
    assert type(caught.value) is RetryableError


async def test_a_stream_that_stands_still_is_given_up_and_says_how_far_it_was() -> None:
    async with api(faults={"stall-stream": None}, stall_after_s=0.5) as (_, address, session):
        began = time.monotonic()
        with pytest.raises(BrokenError, match=r"nothing came for 0\.5 s") as caught:
            await asked(address, session)
    assert time.monotonic() - began < 10
    assert caught.value.stream.id
    assert caught.value.stream.has_text


async def test_a_broken_stream_is_looked_up_by_its_id_where_the_api_tells() -> None:
    async with api(faults={"cut-stream": None}) as (server, address, session):
        with pytest.raises(BrokenError) as caught:
            await asked(address, session)
        assert caught.value.stream.id
        usage = await look_up_bill(session, address, caught.value.stream.id)
        assert usage is not None
        assert usage.cost_usd == float(server.bill.usd) > 0
        assert await look_up_bill(session, address, "unknown") is None


@pytest.mark.parametrize(
    ("faults", "least_s", "most_s"),
    [
        ({"http-429": None}, 1.0, 1.0),
        ({"http-429": None, "retry-in-words": None}, 0.12, 0.12),
        ({"http-429": None, "retry-after-date": None}, 0.0, 2.0),
    ],
)
async def test_a_429_says_how_long_to_wait(faults: dict[str, str | None], least_s: float, most_s: float) -> None:
    async with api(faults=faults) as (_, address, session):
        with pytest.raises(TooManyError) as caught:
            await asked(address, session)
    assert caught.value.retry_after_s is not None
    assert least_s <= caught.value.retry_after_s <= most_s


async def test_usage_null_and_content_null_are_an_answer_all_the_same() -> None:
    async with api(faults={"usage-null": None, "content-null-length": None}) as (_, address, session):
        stream = (await asked(address, session)).stream
    assert (stream.content, stream.finish_reason, stream.usage.completion_tokens) == ([], "length", None)


@pytest.mark.parametrize(
    ("status", "payload", "kind"),
    [
        (429, b'{"error": {"code": "insufficient_quota", "message": "You exceeded your current quota"}}', DeniedError),
        (429, b'{"error": {"message": "Quota of tokens per minute. Please try again in 20s."}}', TooManyError),
        (403, b'{"error": {"message": "Key limit exceeded"}}', DeniedError),
        (403, b'{"error": {"message": "flagged", "metadata": {"reasons": ["violence"]}}}', RejectedError),
        (400, b'{"error": {"message": "API key not valid. Please pass a valid API key."}}', DeniedError),
        (400, b'{"error": {"message": "max_tokens is too large"}}', RejectedError),
        (404, b'{"error": {"message": "No endpoints found for model"}}', DeniedError),
        (422, b"{}", RejectedError),
        (529, b"overloaded", RetryableError),
    ],
)
def test_the_words_decide_where_a_status_has_two_meanings(status: int, payload: bytes, kind: type[Exception]) -> None:
    assert type(api_fault(status, payload, {})) is kind


def test_milliseconds_are_preferred_to_seconds() -> None:
    error = api_fault(429, b"{}", {"retry-after-ms": "120", "retry-after": "1"})
    assert isinstance(error, TooManyError)
    assert error.retry_after_s == 0.12


def test_the_body_holds_what_an_api_takes_and_the_apis_own_extra_body() -> None:
    config = ApiConfig(base_url="http://x/v1", model="m", extra_body={"provider": {"quantizations": ["bf16"]}})
    sampling = SamplingConfig(max_new_tokens=9, temperature=0.5, extra_body={"ignore_eos": True})
    assert orjson.loads(api_body(PROMPT, sampling, config)) == {
        "model": "m", "messages": list(PROMPT.messages), "stream": True, "stream_options": {"include_usage": True},
        "max_tokens": 9, "temperature": 0.5, "provider": {"quantizations": ["bf16"]},
    }  # fmt: skip
    other = config.model_copy(update={"max_tokens_field": MaxTokensField.MAX_COMPLETION_TOKENS})
    assert "max_completion_tokens" in orjson.loads(api_body(PROMPT, sampling, other))
