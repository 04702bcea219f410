"""Keeps exactly `concurrency` requests in flight over all datasets that run, and carries each from prompt to durable row.

A slot is taken when a prompt is started and free again when its row is durable, or when the prompt was given back. A server
that dies or answers "busy" costs a retry, never a sample: the request keeps its slot and is sent again with a new id.
"""

from __future__ import annotations

import asyncio
import functools
import logging
import random
import secrets
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

import aiohttp

from backend.config import DriverConfig
from backend.job.admission import next_dataset
from backend.job.answers import Answer, read_answer, rejected_answer
from backend.job.dataset_runner import DatasetRunner
from backend.job.group_commit import DuplicateRow, LedgerError, RowRefused
from backend.job.in_flight import InFlightJournal
from backend.job.ledger import Ledger
from backend.job.replica import Endpoint
from backend.job.request_driver import Completion, DeniedError, RejectedError, RetryableError, complete, request_body
from backend.records import DatasetState, Prompt

log = logging.getLogger(__name__)

ADMITTING: Final = frozenset({DatasetState.WAITING, DatasetState.RUNNING, DatasetState.DRAINING})
STORE_RETRY_S: Final = 1.0
READ_AHEAD_EVERY_S: Final = 0.1
SPARE_PROMPTS: Final = 64
RID_LENGTH: Final = 32  # SGLang aborts by prefix of the id: all of one length, none is the prefix of another
_ABORT_TIMEOUT_S: Final = 5.0


class Stage(StrEnum):
    """Where a request is."""

    WAITING = "waiting"  # for a server that is ready, or for a back-off to pass
    SENT = "sent"  # a server works on it
    STORING = "storing"  # answered; its row is on the way to the disk


@dataclass(slots=True)
class Request:
    """One slot in use."""

    runner: DatasetRunner
    prompt: Prompt
    stage: Stage = Stage.WAITING
    rid: str = ""
    endpoint: Endpoint | None = None
    task: asyncio.Task[None] | None = None
    resend: bool = False  # its task was cancelled in order to send it again
    stored: bool = False  # its row is durable


@dataclass(slots=True)
class ReplicaTally:
    """What the driver knows of one life of one replica."""

    endpoint: Endpoint
    in_flight: int = 0
    answered: int = 0


@dataclass(slots=True)
class Tally:
    """Counts since the supervisor's start, for rates."""

    finished: int = 0
    rejected: int = 0
    retried: int = 0
    completion_tokens: int = 0
    denied: str | None = None  # why the servers refuse us, while they do
    store_failure: str | None = None  # why rows cannot be written, while they cannot


@dataclass(slots=True)
class Slots:
    """All requests of a run."""

    driver: DriverConfig
    runners: Mapping[str, DatasetRunner]
    ledger: Ledger
    journal: InFlightJournal
    session: aiohttp.ClientSession
    model: str
    now: Callable[[], float]  # epoch seconds
    concurrency: int
    order: Sequence[str]
    admitting: bool = True  # the supervisor's word: not stopping, the disk has room
    tally: Tally = field(default_factory=Tally)
    requests: dict[tuple[str, str], Request] = field(default_factory=dict)
    replicas: dict[str, ReplicaTally] = field(default_factory=dict)
    _changed: asyncio.Event = field(default_factory=asyncio.Event)
    _ready: asyncio.Event = field(default_factory=asyncio.Event)

    # -- admission ---------------------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Fills free slots for ever, each time something has changed. Cancel to end; requests in flight go on."""
        while True:
            self._changed.clear()
            self._fill()
            await self._changed.wait()

    def changed(self) -> None:
        """Something that admission depends on is different: look again."""
        self._changed.set()

    def in_flight(self, dataset: str | None = None) -> int:
        """Slots in use, over all or by one dataset."""
        if dataset is None:
            return len(self.requests)
        return self.runners[dataset].admission.in_flight

    def abort_one(self, dataset: str, sample_id: str) -> None:
        """One request ends (its dataset's budget is spent and `at_budget` is cancel)."""
        request = self.requests.get((dataset, sample_id))
        if request is not None and request.stage is not Stage.STORING and request.task is not None:
            request.task.cancel()

    def _fill(self) -> None:
        if not self.admitting or not self._ready.is_set():
            return
        views = {name: _View(self, runner) for name, runner in self.runners.items()}
        while len(self.requests) < self.concurrency:
            name = next_dataset(self.order, views)
            if name is None:
                return
            runner = self.runners[name]
            request = Request(runner, runner.take())
            runner.started(request.prompt)
            self.requests[name, request.prompt.sample_id] = request
            request.task = asyncio.create_task(self._carry(request))
            request.task.add_done_callback(functools.partial(self._release, request))

    async def read_ahead(self) -> None:
        """Keeps prompts at hand for every dataset that may be next, in order, for ever."""
        while True:
            wanted = self.concurrency + SPARE_PROMPTS
            for name in list(self.order):
                runner = self.runners[name]
                if runner.open and runner.wants_prompts and runner.buffered() < wanted:
                    await runner.read_ahead(2 * wanted)
                    self._changed.set()
            await asyncio.sleep(READ_AHEAD_EVERY_S)

    # -- servers -----------------------------------------------------------------------------------------------------------

    def set_endpoints(self, endpoints: Sequence[Endpoint]) -> None:
        """The servers that are ready now. Requests at one that is no longer among them are sent again elsewhere."""
        known = {tally.endpoint.launch: tally for tally in self.replicas.values()}
        self.replicas = {e.replica: known.get(e.launch) or ReplicaTally(e) for e in endpoints}
        for request in list(self.requests.values()):
            if request.stage is Stage.SENT and request.endpoint is not None and request.endpoint not in endpoints:
                self._send_again(request)
        if endpoints:
            self._ready.set()
            self._changed.set()
        else:
            self._ready.clear()

    def send_again(self, replica: str) -> int:
        """Requests that a server has lost are sent again. Returns how many."""
        lost = [r for r in self.requests.values() if r.stage is Stage.SENT and r.endpoint and r.endpoint.replica == replica]
        for request in lost:
            self._send_again(request)
        return len(lost)

    def _send_again(self, request: Request) -> None:
        if request.task is not None:
            request.resend = True
            request.task.cancel()

    # -- aborting ----------------------------------------------------------------------------------------------------------

    def abort(self, dataset: str, *, only_waiting: bool = False) -> None:
        """Requests of a dataset end and their prompts keep their place. An answer that is already being stored is kept.

        Args:
            dataset: whose requests.
            only_waiting: leave alone what a server works on.
        """
        for request in list(self.requests.values()):
            if request.runner.name != dataset or request.stage is Stage.STORING or request.task is None:
                continue
            if request.stage is Stage.WAITING or not only_waiting:
                request.task.cancel()

    async def close(self) -> None:
        """Ends every request; answers on their way to the disk are waited for."""
        tasks = [r.task for r in self.requests.values() if r.task is not None]
        for request in list(self.requests.values()):
            if request.stage is not Stage.STORING and request.task is not None:
                request.task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    # -- one request -------------------------------------------------------------------------------------------------------

    async def _carry(self, request: Request) -> None:
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

    def _release(self, request: Request, task: asyncio.Task[None]) -> None:
        """Frees the slot. A callback of the task, because a task that is cancelled before its first step runs no `finally`."""
        del self.requests[request.runner.name, request.prompt.sample_id]
        if not request.stored:
            request.runner.ended_without_sample(request.prompt)
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("%s: sample %s could not be made", request.runner.name, ascii(request.prompt.sample_id), exc_info=error)
            request.runner.fault = f"an error in Headway itself ({type(error).__name__}); logs/supervisor.log has it"
        self._changed.set()

    async def _answer(self, request: Request) -> Answer:
        """Sends until there is an answer or no further try is worth it; each try waits for a server that is ready."""
        failures = 0
        while True:
            request.stage = Stage.WAITING
            tally = await self._least_busy()
            started_at = self.now()
            try:
                completion = await self._send(request, tally)
            except RejectedError as error:
                return self._rejected(request, started_at, str(error))
            except DeniedError as error:
                self.tally.denied = str(error)
                await asyncio.sleep(self.driver.retry_backoff_max_s)
            except RetryableError as error:
                failures += 1
                self.tally.retried += 1
                request.runner.note_retry(str(error), self.now())
                if failures > self.driver.max_retries:
                    return self._rejected(request, started_at, f"given up after {failures} tries; the last one: {error}")
                await asyncio.sleep(self._backoff_s(failures, error.retry_after_s))
            else:
                self.tally.denied = None
                return await self._read(request, completion, tally.endpoint, started_at)

    async def _read(self, request: Request, completion: Completion, endpoint: Endpoint, started_at: float) -> Answer:
        request.stage = Stage.STORING
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
        request.stage = Stage.STORING
        endpoint = request.endpoint
        assert endpoint is not None, "a request that was refused has been sent"
        return rejected_answer(request.prompt, self.model, endpoint, started_at=started_at, finished_at=self.now(), words=words)

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
            await self._abort_at_server(tally.endpoint, request.rid)
            raise
        else:
            tally.answered += 1
            return completion
        finally:
            tally.in_flight -= 1
            self._journal(lambda: self.journal.remove(request.rid))

    def _journal(self, write: Callable[[], None]) -> None:
        """Without the journal a killed supervisor's requests end by their broken connections alone: no reason to send none."""
        try:
            write()
        except OSError as error:
            log.warning("%s cannot be written: %s", "in_flight.journal", error)

    async def _abort_at_server(self, endpoint: Endpoint, rid: str) -> None:
        """Closing the connection is not enough: some versions of SGLang go on to the last token."""
        headers = {"Authorization": f"Bearer {endpoint.api_key}"} if endpoint.api_key else {}
        timeout = aiohttp.ClientTimeout(total=_ABORT_TIMEOUT_S)
        try:
            async with self.session.post(
                f"{endpoint.base_url}/abort_request", json={"rid": rid}, headers=headers, timeout=timeout
            ) as response:
                await response.read()
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            log.info("request %s could not be aborted at replica %s: %s", rid, endpoint.replica, error)

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

    async def _least_busy(self) -> ReplicaTally:
        while not self._ready.is_set():
            await self._ready.wait()
        return min(self.replicas.values(), key=lambda tally: tally.in_flight)

    def _backoff_s(self, failures: int, asked_s: float | None) -> float:
        """Full jitter over a doubling limit, so that 150 requests that failed together do not come back together."""
        if asked_s is not None:
            return asked_s * random.uniform(1.0, 1.2)
        limit = min(self.driver.retry_backoff_s * 2.0 ** min(failures - 1, 20), self.driver.retry_backoff_max_s)
        return limit * random.uniform(0.5, 1.0)


@dataclass(slots=True)
class _View:
    """What `next_dataset` asks of a dataset."""

    slots: Slots
    runner: DatasetRunner

    @property
    def may_admit(self) -> bool:
        return self.runner.state in ADMITTING and self.runner.open and self.runner.may_admit()

    @property
    def prompt_ready(self) -> bool:
        return self.runner.prompt_ready
