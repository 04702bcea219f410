"""The requests that go to one API: slots of its own, as many as its limits allow, each with a leave and a reservation."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field

from backend.job.api_billing import ApiBilling
from backend.job.api_courier import ApiCourier
from backend.job.api_route import ApiRoute, Ticket
from backend.job.courier import Courier, Request, Stage
from backend.job.dataset_runner import DatasetRunner
from backend.job.slots import Slots
from backend.records import Prompt


@dataclass(slots=True)
class ApiSlots(Slots):
    """All requests of a run at one API."""

    route: ApiRoute = field(kw_only=True)
    billing: ApiBilling = field(kw_only=True)
    _tickets: dict[tuple[str, str], Ticket] = field(default_factory=dict)  # until their couriers begin
    _alarm: asyncio.TimerHandle | None = None

    def may_take(self, runner: DatasetRunner) -> bool:
        """Whether the dataset's prompts are routed here, or a probe wants one."""
        probe = self.route.probe
        return self.route.name in runner.sources or (probe is not None and probe.wants(runner.name))

    def at_work(self) -> int:
        """Requests that the API works on."""
        return sum(request.stage is Stage.SENT for request in self.requests.values())

    def _make_courier(self) -> Courier:
        return ApiCourier(
            self.driver, self._pool, self.ledger, self.journal, self.session, self.model, self.now, self.tally, self._free_slot,
            self.route, self.billing, self._take_ticket, self.at_work,
        )  # fmt: skip

    def _is_ready(self) -> bool:
        """How many may be in flight is known anew each time."""
        self.concurrency = self.route.rate.concurrency
        at = self.route.rate.next_start_at(self.route.clock(), 0)
        if at > self.route.clock():
            self._wake_at(at)
            return False
        return True

    def _gets_leave(self, runner: DatasetRunner, prompt: Prompt) -> bool:
        probe = self.route.probe
        wanted = probe if probe is not None and probe.wants(runner.name) else None
        ticket = self.route.admit(prompt, runner.sampling, wanted)
        if ticket is None:
            self._wake_at(self.route.wake_at)
            return False
        if wanted is not None:
            wanted.took(runner.name)
        self._tickets[runner.name, prompt.sample_id] = ticket
        return True

    def _take_ticket(self, request: Request) -> Ticket:
        return self._tickets.pop((request.runner.name, request.prompt.sample_id))

    def _has_ended(self, request: Request) -> None:
        ticket = self._tickets.pop((request.runner.name, request.prompt.sample_id), None)
        if ticket is not None:  # its courier never began
            self.route.release(ticket)
            if ticket.probe is not None:
                ticket.probe.released(request.runner.name, again=True)

    def _wake_at(self, at: float | None) -> None:
        if at is None:
            return
        if self._alarm is not None:
            self._alarm.cancel()
        self._alarm = asyncio.get_running_loop().call_later(max(0.0, at - self.route.clock()), self.changed)
