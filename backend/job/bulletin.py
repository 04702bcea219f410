"""What the supervisor says: events and a sign of life each second. Both are kept when the database cannot be written.

How they are written is `state_store.py`'s; here is what happens where that fails: events wait, and the lock's file tells that
this process lives.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable
from typing import Final

from backend.job.alarms import Alarms
from backend.job.conditions import Condition
from backend.job.lock import leave_words
from backend.job.state_store import StateStore
from backend.records import Event, JobStatus, Severity
from backend.run_dir import RunDir

log = logging.getLogger(__name__)

KEPT_EVENTS: Final = 1_000  # that could not be written yet


class Bulletin:
    """Events told and not yet written, conditions told once, the heartbeat."""

    def __init__(self, run: RunDir, store: StateStore, life: int, *, on_event: Callable[[], None] = lambda: None) -> None:
        """`on_event` hears that something was told."""
        self._run, self._store, self._life = run, store, life
        self._alarms = Alarms()
        self._on_event = on_event
        self._told: list[Event] = []
        self._signed = False  # there are words in the lock's file

    def emit(self, event: Event) -> None:
        """Something happened: written with the next heartbeat."""
        log.log(logging.INFO if event.severity is Severity.INFO else logging.WARNING, "%s: %s", event.kind, event.message)
        self._told.append(event)
        self._on_event()

    def tell(
        self, kind: str, subject: str, message: str, severity: Severity = Severity.INFO, *, who: str = "supervisor"
    ) -> None:
        """The same, happening now."""
        self.emit(Event(time.time(), kind, subject, message, severity, who))

    def note(self, condition: Condition) -> None:
        """A condition as it is now: told when it begins and when it is over."""
        one = condition
        for event in self._alarms.update(time.time(), one.kind, one.subject, one.problem, over=one.over):
            self.emit(event)

    async def publish(self, status: JobStatus) -> None:
        """Writes what was told, and the sign of life."""
        if self._told:
            events = self._told.copy()
            if await self._store.record(events):
                del self._told[: len(events)]
            del self._told[:-KEPT_EVENTS]
        failure = await self._store.heartbeat(at=time.time(), pid=os.getpid(), life=self._life, status=status)
        self._sign(failure, status)

    def _sign(self, failure: str | None, status: JobStatus) -> None:
        """Where no heartbeat can be written, the lock's file says that this process lives, and what hinders it."""
        if failure is None and not self._signed:
            return
        words = None
        if failure is not None:
            words = f"{self._run.state} cannot be written: {failure}. {status.admission_stopped or ''}".rstrip()
        try:
            leave_words(self._run, words)
        except OSError as error:
            log.warning("%s cannot be written: %s", self._run.lock, error)
        self._signed = words is not None
