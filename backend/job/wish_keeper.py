"""Holds what is wanted now: folds the accepted intents of former lives, reads new ones, answers each and remembers it durably.

An intent counts once it is in the ledger; only then is it answered, so that no accepted decision is lost with state.sqlite.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Final

from backend.config import RunConfig
from backend.job import wishes as wish
from backend.job.group_commit import LedgerError
from backend.job.ledger import Ledger
from backend.job.state_store import StateStore
from backend.records import Event, Intent, IntentAction, Severity

log = logging.getLogger(__name__)

READ_EVERY_S: Final = 0.2
REDO_FACT: Final = "redo_done_through"  # token of the newest redo intent that was carried out


class WishKeeper:
    """What is wanted, kept current."""

    def __init__(
        self,
        config: RunConfig,
        ledger: Ledger,
        store: StateStore,
        *,
        emit: Callable[[Event], None],
        on_change: Callable[[Intent], None],
    ) -> None:
        """`on_change` hears of each accepted intent once `wishes` holds it."""
        self._ledger, self._store, self._emit, self._on_change = ledger, store, emit, on_change
        self.wishes = wishes_so_far(config, ledger)

    async def run(self) -> None:
        """Reads and answers new intents for ever."""
        while True:
            try:
                await self.read()
            except Exception:
                log.exception("intents could not be read")
                words = "Intents could not be read: an error in Headway itself; logs/supervisor.log has it."
                self._emit(Event(time.time(), "run.intents_unread", "run", words, Severity.ERROR))
            await asyncio.sleep(READ_EVERY_S)

    async def read(self) -> None:
        """Reads and answers what is new now: before the first decision, because the intent to start is among it."""
        for intent in await self._store.new_intents():
            await self._take(intent)

    def ask_to_stop(self, *, now: bool) -> None:
        """A signal asks; it is not remembered for the next life."""
        self.wishes = replace(self.wishes, run=wish.Want.STOPPED, run_now=now)

    async def redo_done(self, dataset: str) -> None:
        """A dataset's redo was carried out, and will not be in the next life."""
        self.wishes = wish.redo_done(self.wishes, dataset)
        if any(one.redo for one in self.wishes.datasets.values()):
            return
        tokens = [i.token for i in self._ledger.accepted_intents() if i.action is IntentAction.REDO]
        if tokens:
            await self._ledger.set_fact(REDO_FACT, tokens[-1])

    async def _take(self, intent: Intent) -> None:
        try:
            wishes, message = wish.apply(self.wishes, intent)
        except wish.RefusedError as error:
            await self._answer(intent, accepted=False, message=str(error))
            return
        try:
            await self._ledger.record_intent(replace(intent, at=time.time()))
        except LedgerError as error:
            await self._answer(intent, accepted=False, message=f"It could not be remembered: {error}")
            return
        self.wishes = wishes
        self._on_change(intent)
        await self._answer(intent, accepted=True, message=message)
        self._emit(Event(time.time(), f"intent.{intent.action}", intent.subject, message, who=intent.who))

    async def _answer(self, intent: Intent, *, accepted: bool, message: str) -> None:
        if intent.id is not None:
            await self._store.answer(intent.id, at=time.time(), accepted=accepted, message=message)


def wishes_so_far(config: RunConfig, ledger: Ledger) -> wish.Wishes:
    """The configuration with every accepted intent folded over it; redos that were carried out are left out."""
    wishes = wish.initial(config)
    intents = ledger.accepted_intents()
    tokens = [intent.token for intent in intents]
    done_through = ledger.get_fact(REDO_FACT)
    first_open = tokens.index(done_through) + 1 if done_through in tokens else 0
    for place, intent in enumerate(intents):
        if intent.action is IntentAction.REDO and place < first_open:
            continue
        try:
            wishes, _ = wish.apply(wishes, intent)
        except wish.RefusedError as error:
            log.warning("an accepted intent no longer fits: %s", error)
    return wishes
