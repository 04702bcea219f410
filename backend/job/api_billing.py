"""Books what attempts cost that brought no sample: answers that broke off, were aborted, or came from another model.

Where the API tells a bill by the id of its answer it is asked, else the cost is estimated from what had come, and what it may
have been at most is set aside. Each works in the background while its reservation still holds.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

import aiohttp

from backend.job.api_bill import ApiUsage, billed_usd
from backend.job.api_driver import ApiAddress, Exchange, look_up_bill
from backend.job.api_key import NoKeyError
from backend.job.api_route import ApiRoute, Ticket
from backend.job.group_commit import LedgerError
from backend.job.in_flight import InFlightJournal
from backend.job.ledger import Ledger
from backend.job.request_faults import RejectedError
from backend.records import Prompt

log = logging.getLogger(__name__)

LOOKUP_AFTER_S: Final = (1.0, 2.0, 4.0)  # a bill is ready some time after its answer has ended


@dataclass(slots=True)
class ApiBilling:
    """The open bills of one API."""

    route: ApiRoute
    ledger: Ledger
    journal: InFlightJournal
    session: aiohttp.ClientSession
    now: Callable[[], float]  # epoch seconds
    _open: set[asyncio.Task[None]] = field(default_factory=set)
    _no_more_lookups: bool = False

    def book(self, ticket: Ticket, prompt: Prompt, exchange: Exchange, outcome: str) -> None:
        """An attempt that was sent and made no sample. `outcome`: failed, aborted."""
        exchange.stream.finish()
        task = asyncio.create_task(self._book(ticket, prompt, exchange, outcome))
        self._open.add(task)
        task.add_done_callback(self._ended)

    @property
    def is_open(self) -> bool:
        """Whether something is still to be booked."""
        return bool(self._open)

    async def close(self) -> None:
        """Waits until all are booked; no further bill is asked for."""
        self._no_more_lookups = True
        await asyncio.gather(*self._open, return_exceptions=True)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._open.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("%s: an attempt could not be booked; its worst case stays set aside", self.route.name, exc_info=error)

    async def _book(self, ticket: Ticket, prompt: Prompt, exchange: Exchange, outcome: str) -> None:
        route = self.route
        usage = exchange.stream.usage
        told = usage.completion_tokens is not None
        if not told and (found := await self._look_up(exchange.stream.id)) is not None:
            usage, told = found, True
        if not told:
            came = route.guess.of_characters(exchange.stream.characters)
            usage = ApiUsage(prompt_tokens=ticket.prompt_tokens if exchange.stream.begun else 0, completion_tokens=came)
        cost = billed_usd(usage, route.prices)
        at_most = None if told else ticket.worst_usd
        beyond = route.settle(ticket, cost or 0.0, at_most_usd=at_most)
        route.ended(exchange, usage.completion_tokens or 0)
        try:
            if beyond:
                await self.ledger.set_fact(unsure_fact(route.name), repr(route.spend.view().unsure_usd))
            await self.ledger.record_billed(
                at=self.now(),
                source=route.name,
                dataset=prompt.dataset,
                sample_id=prompt.sample_id,
                turn=prompt.turn,
                attempt=prompt.attempt,
                prompt_tokens=usage.prompt_tokens,
                completion_tokens=usage.completion_tokens,
                cost_usd=cost,
                outcome=outcome if told else f"{outcome}, estimated",
            )
        except LedgerError:
            return  # its line stays in the journal: the next life sets its worst case aside
        self.journal.remove(ticket.rid)

    async def _look_up(self, generation: str | None) -> ApiUsage | None:
        route = self.route
        if generation is None:
            return None
        for wait_s in LOOKUP_AFTER_S:
            if self._no_more_lookups or not route.can_look_up:
                return None
            await asyncio.sleep(wait_s)
            try:
                found = await look_up_bill(self.session, ApiAddress(route.config, route.key()), generation)
            except (NoKeyError, RejectedError):
                break
            if found is not None:
                route.looked_up(found=True)
                return found
        route.looked_up(found=False)
        return None


def unsure_fact(api: str) -> str:
    """Names the fact that holds what answers of an API that broke off may have cost beyond what was booked, in USD."""
    return f"api_unsure_usd:{api}"
