"""What a server says over HTTP: whether it is ready, which version it is; and how requests are aborted. Every question has a
time-out, runs beside its caller, and a server that hangs delays nobody."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from enum import StrEnum

import aiohttp

from backend.job.replica import AbortFailed, Endpoint

_QUICK_S = 2.0
# Servers without /ready answer /health by generating a token: a second at least.
_HEALTH_S = 5.0
_READY_EVERY_S = 5.0
_VERSION_EVERY_S = 10.0
_VERSION_TRIES = 6
# How long a look may wait for the answer it has just asked for; a later look takes what comes later.
_PATIENCE_S = 0.2
_ABORTS_AT_ONCE = 32
_ABORT_S = 5.0
_ABORT_ALL_S = 15.0


class KeyAnswer(StrEnum):
    """What a server makes of the API key it was started with."""

    TAKEN = "taken"  # the key is accepted, a wrong one is refused: it is the server that was started with it
    IGNORED = "ignored"  # any key is accepted
    REFUSED = "refused"  # the key is refused: another server


class ServerProbe:
    """Asks one server, in one background task at a time."""

    def __init__(self, base_url: str, api_key: str | None) -> None:
        self._base_url = base_url
        self._api_key = api_key
        self._headers = _authorization(api_key)
        self._task: asyncio.Task[None] | None = None
        self._asked_at: float | None = None
        self._version_asked_at: float | None = None
        self._version_tries = 0
        self.ready: bool | None = None  # last answer; None: no answer (not reachable, or too slow)
        self.was_ready = False
        self.reachable: bool | None = None  # something accepts connections there
        self.answered_at: float | None = None  # when the last answer of any kind came
        self.key: KeyAnswer | None = None  # None: not known yet, or no key
        self.version: str | None = None

    async def look(self, session: aiohttp.ClientSession, now: float, *, urgent: bool) -> None:
        """Asks again if it is time (each call while `urgent`, else every few seconds) and waits a moment for the answer."""
        if self._task is not None and self._task.done():
            self._task = None
        if self._task is None:
            due = urgent or self._asked_at is None or now - self._asked_at >= _READY_EVERY_S
            if not due and not self._version_due(now):
                return
            self._asked_at = now if due else self._asked_at
            self._task = asyncio.create_task(self._ask(session, now, due))
        await asyncio.wait({self._task}, timeout=_PATIENCE_S)

    def forget(self) -> None:
        """Drops a question under way."""
        if self._task is not None:
            self._task.cancel()
            self._task = None

    def _version_due(self, now: float) -> bool:
        waited = self._version_asked_at is None or now - self._version_asked_at >= _VERSION_EVERY_S
        return self.version is None and bool(self.ready) and self._version_tries < _VERSION_TRIES and waited

    async def _ask(self, session: aiohttp.ClientSession, now: float, ready_due: bool) -> None:
        if ready_due:
            self.ready = await self._ask_ready(session)
            self.was_ready = self.was_ready or bool(self.ready)
            if self.ready is not None:
                self.answered_at = now
            if self.ready and self._api_key is not None and self.key in (None, KeyAnswer.REFUSED):
                self.key = await self._ask_key(session)
        if self._version_due(now):
            self._version_asked_at = now
            self._version_tries += 1
            self.version = await self._ask_version(session)

    async def _ask_ready(self, session: aiohttp.ClientSession) -> bool | None:
        for path, timeout_s in (
            ("/ready", _QUICK_S),
            ("/health", _HEALTH_S),
            ("/model_info", _QUICK_S),
            ("/v1/models", _QUICK_S),
        ):
            status, _ = await self._get(session, path, timeout_s)
            if status is None:
                return None
            if status not in (404, 405):  # 404: a version that has no such page
                return status == 200
        return False

    async def _ask_key(self, session: aiohttp.ClientSession) -> KeyAnswer | None:
        right, _ = await self._get(session, "/v1/models", _QUICK_S)
        if right in (401, 403):
            return KeyAnswer.REFUSED
        wrong, _ = await self._get(session, "/v1/models", _QUICK_S, headers=_authorization(f"not-{self._api_key}"))
        if right is None or wrong is None:
            return None
        return KeyAnswer.TAKEN if wrong in (401, 403) else KeyAnswer.IGNORED

    async def _ask_version(self, session: aiohttp.ClientSession) -> str | None:
        # /v1/loads first: it costs the scheduler nothing. /server_info waits for the scheduler for ever, hence the time-out.
        for path in ("/v1/loads", "/server_info", "/get_server_info"):
            status, body = await self._get(session, path, _QUICK_S)
            if status == 200 and isinstance(body, dict) and isinstance(version := body.get("version"), str):
                return version
        return None

    async def _get(
        self, session: aiohttp.ClientSession, path: str, timeout_s: float, headers: dict[str, str] | None = None
    ) -> tuple[int | None, object]:
        timeout = aiohttp.ClientTimeout(total=timeout_s)
        try:
            async with session.get(self._base_url + path, headers=headers or self._headers, timeout=timeout) as answer:
                self.reachable = True
                is_json = answer.content_type == "application/json"
                return answer.status, await answer.json() if is_json else await answer.read()
        except aiohttp.ClientConnectorError:
            self.reachable = False
            return None, None
        except (aiohttp.ClientError, TimeoutError, ValueError):
            return None, None


async def abort_requests(session: aiohttp.ClientSession, endpoint: Endpoint, rids: Sequence[str] | None) -> None:
    """Aborts these requests on the server, or everything (None; only on a server of our own). Raises AbortFailed."""
    if rids is None and not endpoint.owned:
        raise AbortFailed(
            f"{endpoint.base_url} is run by somebody else: only requests of this run are aborted there, never everything."
        )
    bodies = [{"rid": "", "abort_all": True}] if rids is None else [{"rid": rid, "abort_all": False} for rid in rids if rid]
    url, headers = f"{endpoint.base_url}/abort_request", _authorization(endpoint.api_key)
    limit = asyncio.Semaphore(_ABORTS_AT_ONCE)
    timeout = aiohttp.ClientTimeout(total=_ABORT_S)

    async def send(body: dict[str, object]) -> str | None:
        try:
            async with limit, session.post(url, json=body, headers=headers, timeout=timeout) as answer:
                return None if answer.status == 200 else f"it answered {answer.status}"
        except (aiohttp.ClientError, TimeoutError) as error:
            return str(error) or f"it did not answer in {_ABORT_S:g} s"

    try:
        async with asyncio.timeout(_ABORT_ALL_S):
            answers = await asyncio.gather(*(send(body) for body in bodies))
    except TimeoutError:
        raise AbortFailed(f"{len(bodies)} aborts on {endpoint.base_url} were not all taken in {_ABORT_ALL_S:g} s.") from None
    failures = [answer for answer in answers if answer is not None]
    if failures:
        raise AbortFailed(f"{len(failures)} of {len(bodies)} aborts on {endpoint.base_url} failed: {failures[0]}.")


def _authorization(api_key: str | None) -> dict[str, str]:
    return {} if api_key is None else {"Authorization": f"Bearer {api_key}"}
