"""Carries one request from its prompt to a durable row, through as many servers and tries as it takes.

A server that dies or answers "busy" costs a try, never a sample: the request is sent again with a new id. Which prompt gets a
slot is `slots.py`'s choice, how one exchange goes over the wire `request_driver.py`'s.
"""

from __future__ import annotations

import asyncio
import logging
import random
import secrets
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

import aiohttp

from backend.config import DriverConfig
from backend.job.answers import Answer, read_answer, rejected_answer
from backend.job.dataset_runner import DatasetRunner
from backend.job.group_commit import DuplicateRow, LedgerError, RowRefused
from backend.job.in_flight import InFlightJournal
from backend.job.ledger import Ledger
from backend.job.replica import Endpoint
from backend.job.request_driver import Completion, abort, complete, request_body
from backend.job.request_faults import DeniedError, RejectedError, RetryableError
from backend.job.server_pool import ReplicaTally, ServerPool
from backend.records import Prompt

log = logging.getLogger(__name__)

STORE_RETRY_S: Final = 1.0
LONGEST_WAIT_S: Final = 900.0  # of a Retry-After: a server that asks for a day is asked again before
LATELY: Final = 1_000  # answers whose time to the first token is remembered
RID_LENGTH: Final = 32  # SGLang aborts by prefix of the id: all of one length, none is the prefix of another


class Stage(StrEnum):
    """Where a request is."""

    WAITING = "waiting"  # for a server that is ready, or for a back-off to pass
    SENT = "sent"  # a server works on it
    STORING = "storing"  # answered; its row is on the way to the disk


@dataclass(slots=True)
class Request:
    """A prompt on its way to a durable row; it uses a slot until it is answered."""

    runner: DatasetRunner
    prompt: Prompt
    stage: Stage = Stage.WAITING
    rid: str = ""
    endpoint: Endpoint | None = None
    started_at: float = 0.0  # when its slot was taken, epoch seconds
    task: asyncio.Task[None] | None = None
    resend: bool = False  # its task was cancelled in order to send it again
    answered: bool = False  # no server works on it any more: its slot is free, its row is not durable yet
    stored: bool = False  # its row is durable


@dataclass(slots=True)
class Tally:
    """Counts since the supervisor's start, for rates."""

    finished: int = 0
    rejected: int = 0
    retried: int = 0
    completion_tokens: int = 0
    first_tokens: deque[tuple[float, float]] = field(default_factory=lambda: deque(maxlen=LATELY))  # (started, seconds to it)
    denied: str | None = None  # why the servers refuse us, while they do
    store_failure: str | None = None  # why rows cannot be written, while they cannot


@dataclass(frozen=True, slots=True)
class Courier:
    """What carrying a request needs. Times in epoch seconds."""

    driver: DriverConfig
    pool: ServerPool
    ledger: Ledger
    journal: InFlightJournal
    session: aiohttp.ClientSession
    model: str
    now: Callable[[], float]
    tally: Tally
    on_answered: Callable[[Request], None]  # called once a request

    async def carry(self, request: Request) -> None:
        """From a prompt to a durable row, through as many servers and tries as it takes."""
        while True:
            try:
                answer = await self._answer(request)
            except asyncio.CancelledError:
                if not request.resend:
                    raise
                request.resend = False
            else:
                break
        await self._store(request, answer)

    async def _answer(self, request: Request) -> Answer:
        """Sends until there is an answer or no further try is worth it; each try waits for a server that is ready."""
        failures = 0
        while True:
            request.stage = Stage.WAITING
            tally = await self.pool.least_busy()
            started_at = self.now()
            try:
                completion = await self._send(request, tally)
            except RejectedError as error:
                return self._rejected(request, started_at, str(error))
            except DeniedError as error:
                request.stage = Stage.WAITING
                self.tally.denied = str(error)
                await asyncio.sleep(self.driver.retry_backoff_max_s)
            except RetryableError as error:
                request.stage = Stage.WAITING
                failures += 1
                self.tally.retried += 1
                request.runner.note_retry(str(error), self.now())
                request.runner.begins_anew(request.prompt)
                if failures > self.driver.max_retries:
                    return self._rejected(request, started_at, f"given up after {failures} tries; the last one: {error}")
                await asyncio.sleep(self._backoff_s(failures, error.retry_after_s))
            else:
                self.tally.denied = None
                return await self._read(request, completion, tally.endpoint, started_at)

    async def _read(self, request: Request, completion: Completion, endpoint: Endpoint, started_at: float) -> Answer:
        self._note_answered(request)
        return await read_answer(
            self.session,
            request.prompt,
            completion,
            endpoint,
            started_at=started_at,
            finished_at=self.now(),
            opened=request.runner.reasoning_opened,
        )

    def _rejected(self, request: Request, started_at: float, words: str) -> Answer:
        self._note_answered(request)
        endpoint = request.endpoint
        assert endpoint is not None, "a request that was refused has been sent"
        return rejected_answer(request.prompt, self.model, endpoint, started_at=started_at, finished_at=self.now(), words=words)

    def _note_answered(self, request: Request) -> None:
        request.stage = Stage.STORING
        if not request.answered:
            request.answered = True
            self.on_answered(request)

    async def _send(self, request: Request, tally: ReplicaTally) -> Completion:
        request.rid = secrets.token_hex(RID_LENGTH // 2)
        body = request_body(request.prompt, request.runner.sampling, model=self.model, rid=request.rid)
        request.endpoint = tally.endpoint
        self._journal(lambda: self.journal.add(request.rid, tally.endpoint.replica))
        request.stage = Stage.SENT
        tally.in_flight += 1
        try:
            completion = await complete(self.session, tally.endpoint, body)
        except asyncio.CancelledError:
            await self._abort(tally.endpoint, request.rid)
            raise
        else:
            tally.answered += 1
            return completion
        finally:
            tally.in_flight -= 1
            self._journal(lambda: self.journal.remove(request.rid))

    async def _abort(self, endpoint: Endpoint, rid: str) -> None:
        """Closing the connection is not enough: some versions of SGLang go on to the last token."""
        try:
            await abort(self.session, endpoint, rid)
        except RetryableError as error:
            log.info("request %s could not be aborted at replica %s: %s", rid, endpoint.replica, error)

    def _journal(self, write: Callable[[], None]) -> None:
        """Without the journal a killed supervisor's requests end by their broken connections alone: no reason to send none."""
        try:
            write()
        except OSError as error:
            log.warning("in_flight.journal cannot be written: %s", error)

    async def _store(self, request: Request, answer: Answer) -> None:
        """Waits until the row is durable, however long the disk refuses it."""
        while True:
            try:
                await asyncio.shield(self.ledger.append(answer.row))
            except DuplicateRow:
                raise
            except RowRefused as error:
                answer = self._rejected(request, answer.row.started_at, f"its answer cannot be kept: {error}")
            except LedgerError as error:
                self.tally.store_failure = str(error)
                await asyncio.sleep(STORE_RETRY_S)
            else:
                break
        request.stored = True
        self.tally.store_failure = None
        request.runner.reasoning_opened |= answer.shows_opened_reasoning
        self._count(answer)
        request.runner.finished(request.prompt, answer.row, answer.message)

    def _count(self, answer: Answer) -> None:
        self.tally.finished += 1
        if answer.message is None:
            self.tally.rejected += 1
        else:
            self.tally.completion_tokens += answer.row.completion_tokens
            if answer.row.first_token_at is not None:
                self.tally.first_tokens.append((answer.row.started_at, answer.row.first_token_at - answer.row.started_at))

    def _backoff_s(self, failures: int, asked_s: float | None) -> float:
        """Full jitter over a doubling limit, so that 150 requests that failed together do not come back together."""
        if asked_s is not None:
            return min(asked_s, LONGEST_WAIT_S) * random.uniform(1.0, 1.2)
        limit = min(self.driver.retry_backoff_s * 2.0 ** min(failures - 1, 20), self.driver.retry_backoff_max_s)
        return limit * random.uniform(0.5, 1.0)
