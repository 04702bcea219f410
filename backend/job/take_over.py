"""What a former supervisor left: its servers are kept where they are proven ours, and what it had asked of them is ended.

It happens before anything is sent: a prompt must not be made twice at the same time.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence

import aiohttp

from backend.job.bulletin import Bulletin
from backend.job.in_flight import InFlightJournal
from backend.job.replica import AbortFailed, AdoptOutcome
from backend.job.replica_keeper import ReplicaKeeper
from backend.records import Severity


async def take_over(
    keepers: Sequence[ReplicaKeeper],
    journal: InFlightJournal,
    session: aiohttp.ClientSession,
    bulletin: Bulletin,
    *,
    give_sign: Callable[[], Awaitable[None]],
) -> None:
    """Goes through the replicas one by one; `give_sign` writes a heartbeat in between."""
    former = journal.requests()
    for keeper in keepers:
        result = await asyncio.to_thread(keeper.replica.adopt)
        subject = f"engine:{keeper.name}"
        adopted = result.outcome is AdoptOutcome.ADOPTED
        if adopted:
            keeper.adopted()
            bulletin.tell("engine.adopted", subject, f"Replica {keeper.name}: its server was kept ({result.reason}).")
        elif result.outcome is not AdoptOutcome.NOTHING:
            severity = Severity.WARNING if result.outcome is AdoptOutcome.REAPED else Severity.ERROR
            bulletin.tell(f"engine.{result.outcome}", subject, f"Replica {keeper.name}: {result.reason}", severity)
        await give_sign()
        ours = [rid for rid, name in former.items() if name == keeper.name]
        if ours and (adopted or not keeper.owned):
            await _abort_former(keeper, ours, session, bulletin)
    for rid in former:
        journal.remove(rid)


async def _abort_former(keeper: ReplicaKeeper, rids: Sequence[str], session: aiohttp.ClientSession, bulletin: Bulletin) -> None:
    subject = f"engine:{keeper.name}"
    try:
        await keeper.replica.abort(session, None if keeper.owned else rids)
    except AbortFailed as error:
        bulletin.tell("engine.abort_failed", subject, str(error), Severity.WARNING)
        return
    words = f"Replica {keeper.name}: {len(rids)} requests of the former supervisor were aborted; they are made again."
    bulletin.tell("engine.former_requests_aborted", subject, words)
