"""One request from parsed to answered: faults on the way in, waiting, the client that goes away, streams.

The endpoints (generation_endpoints.py) say which body an answer has.
"""

from __future__ import annotations

import asyncio
import email.utils
import time
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING

from aiohttp import web

from backend.simulator.engine import Generation
from backend.simulator.faults import Faults
from backend.simulator.generation import GenerationRequest
from backend.simulator.planning import plan_answer
from backend.simulator.texts import write

if TYPE_CHECKING:
    from backend.simulator.server import SimulatedServer

_DISCONNECT_POLL_S = 4.0
_MIN_POLL_S = 0.05
_STREAM_DISCONNECT_S = 2.0
_STREAM_TICK_S = 0.02
_STATUS_WORDS = {
    401: "Incorrect API key provided.",
    402: "Insufficient credits.",
    500: "Internal Server Error",
    503: "The request queue is full.",
    429: "Too many requests.",
}


class ClientGoneError(Exception):
    """The client closed its connection; its generation was ended (or not, with that fault)."""


class ServerError(Exception):
    """The request is answered with this status and message."""

    def __init__(self, status: int, message: str, headers: dict[str, str] | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.message = message
        self.headers = headers or {}


async def meet_faults(server: SimulatedServer, http: web.Request, request: GenerationRequest) -> None:
    """What goes wrong before a request reaches the engine. Raises ServerError or ClientGoneError."""
    faults = server.faults
    server.server_faults.count_request()
    if not faults.active:
        return
    if faults.strikes("disconnect"):
        if http.transport is not None:
            http.transport.abort()
        raise ClientGoneError
    if faults.strikes_prompt("reject-400", request.prompt):
        raise ServerError(400, "The simulator was told to reject this request.")
    if faults.strikes_prompt("flagged-403", request.prompt):
        raise ServerError(403, "Your input was flagged by moderation: violence.")
    for status, words in _STATUS_WORDS.items():
        if faults.strikes(f"http-{status}"):
            raise refusal_429(faults, 1.0, words) if status == 429 else ServerError(status, words)


def refusal_429(faults: Faults, wait_s: float, words: str, headers: dict[str, str] | None = None) -> ServerError:
    """HTTP 429 that asks to wait: in seconds, or as the faults have it."""
    if "retry-in-words" in faults:
        return ServerError(429, f"{words} Please try again in 120ms.", headers)
    asked = f"{max(1, round(wait_s))}"
    if "retry-after-date" in faults:
        asked = email.utils.formatdate(time.time() + max(1.0, wait_s), usegmt=True)
    return ServerError(429, words, {**(headers or {}), "Retry-After": asked})


async def watch_clients(server: SimulatedServer) -> None:
    """End the generations whose clients went away; one look at all of them instead of a timer for each."""
    while True:
        await asyncio.sleep(max(_DISCONNECT_POLL_S / server.settings.speed, _MIN_POLL_S))
        if "ignore-disconnects" in server.faults:
            continue
        for generation, http in list(server.clients.items()):
            if _is_gone(http):
                server.engine.abort(generation.request.rid)


async def generate(server: SimulatedServer, http: web.Request, request: GenerationRequest) -> Generation:
    """Run one request that is not streamed to its end; `watch_clients` ends it if its client goes.

    Raises what `meet_faults` does, and BadRequestError.
    """
    await meet_faults(server, http, request)
    faults = server.faults
    plan = plan_answer(request, server.settings, faults)
    generation = server.engine.submit(request, plan, aborted_halfway=faults.strikes("abort-200"))
    if not generation.done.done():
        server.clients[generation] = http
        try:
            await generation.done
        finally:
            del server.clients[generation]
    if "slow-first-byte" in faults:
        await asyncio.sleep((faults.value("slow-first-byte") or 0.0) / server.settings.speed)
    _raise_if_failed(generation)
    return generation


def _raise_if_failed(generation: Generation) -> None:
    finish = generation.sequence.finish
    if finish is not None and finish.status is not None and finish.status >= 400:
        raise ServerError(finish.status, finish.message)


def _is_gone(http: web.Request) -> bool:
    return http.transport is None or http.transport.is_closing()


async def stream_ids(server: SimulatedServer, generation: Generation) -> AsyncIterator[tuple[list[int], bool]]:
    """The token ids so far and whether that is all, each time there is a chunk more."""
    sent, chunk = 0, server.settings.chunk_tokens
    full = write(generation.plan, generation.sequence.target_tokens)
    while True:
        done = generation.done.done()
        count = generation.sequence.generated if done else server.engine.generated_of(generation)
        if done:
            yield full[:count], True
            return
        if count >= sent + chunk or (count and not sent):
            sent = count
            yield full[:count], False
        missing = sent + chunk - count
        await asyncio.wait((generation.done,), timeout=max(_STREAM_TICK_S, missing * server.engine.token_s()))


async def end_abandoned(server: SimulatedServer, generation: Generation) -> None:
    """The client of a stream went away: its generation ends soon after, unless that fault is on."""
    await asyncio.sleep(_STREAM_DISCONNECT_S / server.settings.speed)
    if "ignore-disconnects" not in server.faults:
        server.engine.abort(generation.request.rid)
