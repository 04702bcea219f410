"""Keeps exactly `concurrency` requests in flight over all datasets that run, until the last one drains.

A slot is taken when a prompt is started and free again when it is answered (its row is on the way to the disk then, and the
server must not wait for that), or when the prompt was given back. What happens to a request in between is `courier.py`'s.
"""

from __future__ import annotations

import asyncio
import functools
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

import aiohttp

from backend.config import DriverConfig
from backend.job.admission import next_dataset
from backend.job.courier import Courier, Request, Stage, Tally
from backend.job.dataset_runner import DatasetRunner
from backend.job.in_flight import InFlightJournal
from backend.job.ledger import Ledger
from backend.job.replica import Endpoint
from backend.job.routes import LOCAL
from backend.job.server_pool import ReplicaTally, ServerPool
from backend.records import DatasetState, Prompt

log = logging.getLogger(__name__)

ADMITTING: Final = frozenset({DatasetState.WAITING, DatasetState.RUNNING, DatasetState.DRAINING})
READ_AHEAD_EVERY_S: Final = 0.1
SPARE_PROMPTS: Final = 64
SPARE_ANSWERS: Final = 64  # with `concurrency` more: how many may wait for the disk
STORE_LIMIT_S: Final = 30.0  # for answers on their way to the disk, when the supervisor leaves


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
    pilot_samples: int = 0  # of each dataset whose turn has not come, made first
    on_idle: Callable[[], None] = lambda: None  # hears that a dataset has nothing in flight any more
    admitting: bool = True  # the supervisor's word: not stopping, the disk has room
    tally: Tally = field(default_factory=Tally)
    requests: dict[tuple[str, str], Request] = field(default_factory=dict)
    _pool: ServerPool = field(default_factory=ServerPool)
    _courier: Courier = field(init=False)
    _changed: asyncio.Event = field(default_factory=asyncio.Event)
    _storing: int = 0  # answered and not yet durable: they use no slot

    def __post_init__(self) -> None:
        self._courier = self._make_courier()

    # -- what is different where requests go to an API (`api_slots.py`) ----------------------------------------------------

    def may_take(self, runner: DatasetRunner) -> bool:
        """Whether the dataset's prompts are routed here."""
        return LOCAL in runner.sources

    def _make_courier(self) -> Courier:
        return Courier(
            self.driver, self._pool, self.ledger, self.journal, self.session, self.model, self.now, self.tally, self._free_slot
        )

    def _is_ready(self) -> bool:
        return self._pool.is_ready

    def _gets_leave(self, runner: DatasetRunner, prompt: Prompt) -> bool:
        """Whether this prompt may be sent now; else its slot stays free."""
        return True

    def _has_ended(self, request: Request) -> None:
        """A request was released."""

    @property
    def replicas(self) -> Mapping[str, ReplicaTally]:
        """The servers that are ready now, by replica."""
        return self._pool.replicas

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
            return len(self.requests) - self._storing
        return self.runners[dataset].in_flight

    def abort_one(self, dataset: str, sample_id: str) -> None:
        """One request ends (its dataset's budget is spent and `at_budget` is cancel)."""
        request = self.requests.get((dataset, sample_id))
        if request is not None and request.stage is not Stage.STORING and request.task is not None:
            request.task.cancel()

    def _fill(self) -> None:
        if not self.admitting or not self._is_ready() or self.tally.store_failure is not None:
            return
        views = {name: _View(self, runner) for name, runner in self.runners.items()}
        # A disk that hangs must not let answers pile up in memory.
        while self.in_flight() < self.concurrency and self._storing < self.concurrency + SPARE_ANSWERS:
            turn = next_dataset(self.order, views, self.pilot_samples)
            if turn is None:
                return
            runner = self.runners[turn.dataset]
            prompt = runner.take()
            if not self._gets_leave(runner, prompt):
                runner.give_back(prompt)
                return
            request = Request(runner, prompt, started_at=self.now())
            runner.started(request.prompt, pilot=turn.pilot)
            self.requests[turn.dataset, request.prompt.sample_id] = request
            request.task = asyncio.create_task(self._courier.carry(request))
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
        self._pool.set(endpoints)
        for request in list(self.requests.values()):
            if request.stage is Stage.SENT and request.endpoint is not None and request.endpoint not in endpoints:
                self._send_again(request)
        self._changed.set()

    def send_again(self, replica: str) -> int:
        """Requests that a server has lost are sent again. Returns how many."""
        lost = [r for r in self.requests.values() if r.stage is Stage.SENT and r.endpoint and r.endpoint.replica == replica]
        for request in lost:
            self._send_again(request)
        return len(lost)

    def _send_again(self, request: Request) -> None:
        if request.task is not None:
            request.resend = True
            request.runner.begins_anew(request.prompt)
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
                request.resend = False
                request.task.cancel()

    def abort_newest(self, keep: int) -> None:
        """The newest requests end until `keep` are in flight: they have made the least. Their prompts keep their place."""
        flying = [request for request in self.requests.values() if request.stage is not Stage.STORING]
        for request in flying[keep:]:
            if request.task is not None:
                request.resend = False
                request.task.cancel()

    async def close(self, *, store_limit_s: float = STORE_LIMIT_S) -> None:
        """Ends every request. Answers on their way to the disk are waited for, up to the limit: a full disk must not keep the
        supervisor from leaving; what is not durable then is made again."""
        tasks = [r.task for r in self.requests.values() if r.task is not None]
        for request in list(self.requests.values()):
            if request.stage is not Stage.STORING and request.task is not None:
                request.resend = False
                request.task.cancel()
        if tasks:
            _, late = await asyncio.wait(tasks, timeout=store_limit_s)
            for task in late:
                task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _free_slot(self, request: Request) -> None:
        """The server has room for another one, while this one's row goes to the disk."""
        self._storing += 1
        request.runner.storing += 1
        self._changed.set()

    def _release(self, request: Request, task: asyncio.Task[None]) -> None:
        """Frees the slot. A callback of the task, because a task that is cancelled before its first step runs no `finally`."""
        del self.requests[request.runner.name, request.prompt.sample_id]
        self._has_ended(request)
        if request.answered:
            self._storing -= 1
            request.runner.storing -= 1
        if not request.stored:
            request.runner.ended_without_sample(request.prompt)
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("%s: sample %s could not be made", request.runner.name, ascii(request.prompt.sample_id), exc_info=error)
            request.runner.fault = f"an error in Headway itself ({type(error).__name__}); logs/supervisor.log has it"
        self._changed.set()
        if not request.runner.admission.in_flight:
            self.on_idle()


@dataclass(slots=True)
class _View:
    """What `next_dataset` asks of a dataset."""

    slots: Slots
    runner: DatasetRunner

    @property
    def may_admit(self) -> bool:
        runner = self.runner
        return self.slots.may_take(runner) and runner.state in ADMITTING and runner.open and runner.may_admit()

    @property
    def prompt_ready(self) -> bool:
        return self.runner.prompt_ready

    @property
    def samples_begun(self) -> int:
        return self.runner.admission.finished_samples + self.runner.admission.in_flight
