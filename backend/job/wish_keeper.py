"""Holds what is wanted now: folds the accepted intents of former lives, reads new ones, answers each and remembers it durably.

An intent counts once it is in the ledger; only then is it answered, so that no accepted decision is lost with state.sqlite.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Collection, Iterable
from dataclasses import replace
from typing import Final

from backend.config import RunConfig
from backend.job import wishes as wish
from backend.job.group_commit import LedgerError
from backend.job.ledger import Ledger
from backend.job.state_store import StateStore
from backend.records import Event, Intent, IntentAction, Outcome, Severity

log = logging.getLogger(__name__)

READ_EVERY_S: Final = 0.2


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
        check: Callable[[Intent], None] = lambda _: None,
    ) -> None:
        """`on_change` hears of each accepted intent once `wishes` holds it; `check` raises RefusedError for what cannot be."""
        self._ledger, self._store, self._emit, self._on_change, self._check = ledger, store, emit, on_change, check
        self._reading = asyncio.Lock()  # two readers would both take an intent
        self.wishes = wishes_so_far(config, ledger)

    async def run(self) -> None:
        """Reads and answers new intents for ever."""
        while True:
            await self.try_to_read()
            await asyncio.sleep(READ_EVERY_S)

    async def try_to_read(self) -> None:
        """As `read`, but an error is told and does not end the supervisor."""
        try:
            await self.read()
        except Exception:
            log.exception("intents could not be read")
            words = "Intents could not be read: an error in Headway itself; logs/supervisor.log has it."
            self._emit(Event(time.time(), "run.intents_unread", "run", words, Severity.ERROR))

    async def read(self) -> None:
        """Reads and answers what is new now: before the first decision, because the intent to start is among it, and before
        the supervisor leaves, because the last one may ask to go on."""
        async with self._reading:
            for intent in await self._store.new_intents():
                await self._take(intent)

    def ask_to_stop(self, *, now: bool) -> None:
        """A signal asks; it is not remembered for the next life."""
        self.wishes = replace(self.wishes, run=wish.Want.STOPPED, run_now=now)

    async def redo_done(self, dataset: str, outcomes: Collection[Outcome]) -> None:
        """A dataset's redo of these outcomes was carried out, and will not be in the next life."""
        self.wishes = wish.redo_done(self.wishes, dataset, outcomes)
        left = self.wishes.datasets[dataset].redo
        done_through = None
        for intent in _redos(self._ledger.accepted_intents(), dataset):
            if not set(left).isdisjoint(intent.value["outcomes"]):
                break  # asked while the others were carried out
            done_through = intent.token
        if done_through is not None:
            await self._ledger.set_fact(_redo_fact(dataset), done_through)

    async def _take(self, intent: Intent) -> None:
        known = any(one.token == intent.token for one in self._ledger.accepted_intents())
        try:
            _, message = wish.apply(self.wishes, intent)
            if not known:
                self._check(intent)
        except wish.RefusedError as error:
            await self._answer(intent, accepted=False, message=str(error))
            return
        except Exception as error:
            # unanswered it would be read for ever, and nothing that is wanted after it
            log.exception("an intent cannot be judged: %a", intent)
            words = f"It cannot be understood: an error in Headway itself ({type(error).__name__})."
            await self._answer(intent, accepted=False, message=words)
            return
        if known:  # only its answer was lost; carried out again, it would undo what came after it
            await self._answer(intent, accepted=True, message=message)
            return
        try:
            await self._ledger.record_intent(replace(intent, at=time.time()))
        except LedgerError as error:
            await self._answer(intent, accepted=False, message=f"It could not be remembered: {error}")
            return
        # applied to what is wanted now: a signal or the end of a redo may have come while it was being remembered
        self.wishes, message = wish.apply(self.wishes, intent)
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
    done = {token for name in wishes.datasets for token in _redos_done(intents, name, ledger.get_fact(_redo_fact(name)))}
    for intent in intents:
        if intent.token in done:
            continue
        try:
            wishes, _ = wish.apply(wishes, intent)
        except wish.RefusedError as error:
            log.warning("an accepted intent no longer fits: %s", error)
    return wishes


def _redos(intents: Iterable[Intent], dataset: str) -> list[Intent]:
    return [one for one in intents if one.action is IntentAction.REDO and one.subject == f"dataset:{dataset}"]


def _redos_done(intents: Iterable[Intent], dataset: str, done_through: str | None) -> list[str]:
    tokens = [intent.token for intent in _redos(intents, dataset)]
    return tokens[: tokens.index(done_through) + 1] if done_through in tokens else []


def _redo_fact(dataset: str) -> str:
    """Names the fact that holds the token of the newest redo of a dataset that was carried out."""
    return f"redo_done_through:{dataset}"
