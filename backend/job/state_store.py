"""The supervisor's side of state.sqlite: heartbeat, events, answers to intents, and reading new intents.

All of it happens on one thread of its own, so that a page that holds the database, or a slow disk, never stops the event loop.
Losing a write here loses history, never samples: a failed one is logged and the job goes on.
"""

from __future__ import annotations

import asyncio
import json
import logging
import sqlite3
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from typing import Any, TypeVar

from backend.records import Event, Intent, IntentAction, JobStatus
from backend.run_dir import RunDir, open_state

log = logging.getLogger(__name__)
T = TypeVar("T")


class StateStore:
    """state.sqlite, written from the event loop without waiting in it."""

    def __init__(self, run: RunDir) -> None:
        """Opens the database (made anew where it is missing)."""
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="state")
        self._con = self._thread.submit(open_state, run).result()
        self._failures: Counter[str] = Counter()

    async def heartbeat(self, *, at: float, pid: int, life: int, status: JobStatus) -> str | None:
        """The one row that says: alive, and this is how it goes. Returns why it could not be written, None if it was."""
        values = (at, pid, life, status.phase.value, json.dumps(asdict(status)))
        sql = "INSERT OR REPLACE INTO heartbeat VALUES (1, ?, ?, ?, ?, ?)"
        return (await self._try("a heartbeat", lambda con: con.execute(sql, values)))[1]

    async def record(self, events: Sequence[Event]) -> bool:
        """Events, in order. Returns whether they are written."""
        rows = [(e.at, e.kind, e.subject, e.severity.value, e.message, e.who, json.dumps(dict(e.details))) for e in events]
        sql = "INSERT INTO events (at, kind, subject, severity, message, who, details) VALUES (?, ?, ?, ?, ?, ?, ?)"
        return (await self._try("events", lambda con: con.executemany(sql, rows)))[1] is None

    async def new_intents(self) -> list[Intent]:
        """Intents that nobody has answered yet, oldest first. One that cannot be read is answered here, as refused."""
        return (await self._try("intents", _new_intents))[0] or []

    async def answer(self, intent_id: int, *, at: float, accepted: bool, message: str) -> None:
        """What became of an intent."""
        values = (intent_id, at, int(accepted), message)
        sql = "INSERT OR REPLACE INTO intent_answers VALUES (?, ?, ?, ?)"
        await self._try("an answer", lambda con: con.execute(sql, values))

    async def run(self, work: Callable[[sqlite3.Connection], Any]) -> None:
        """Any other work on the database (telemetry), on its thread; it makes its own transactions."""
        await self._try("telemetry", work, own_transactions=True)

    def close(self) -> None:
        """Waits for what is under way and closes."""
        self._thread.submit(self._con.close).result()
        self._thread.shutdown()

    async def _try(
        self, what: str, work: Callable[[sqlite3.Connection], T], *, own_transactions: bool = False
    ) -> tuple[T | None, str | None]:
        call = (work, self._con) if own_transactions else (self._in_transaction, work)
        try:
            result: T = await asyncio.get_running_loop().run_in_executor(self._thread, *call)
        except sqlite3.Error as error:
            self._failures[what] += 1
            if self._failures[what] in (1, 10) or self._failures[what] % 600 == 0:
                log.warning("state.sqlite: %s cannot be kept or read (%s in a row): %s", what, self._failures[what], error)
            return None, str(error)
        del self._failures[what]
        return result, None

    def _in_transaction(self, work: Callable[[sqlite3.Connection], T]) -> T:
        self._con.execute("BEGIN IMMEDIATE")
        try:
            result = work(self._con)
        except BaseException:
            if self._con.in_transaction:  # a full disk has ended it already
                self._con.execute("ROLLBACK")
            raise
        self._con.execute("COMMIT")
        return result


def _new_intents(con: sqlite3.Connection) -> list[Intent]:
    rows = con.execute(
        "SELECT id, at, who, subject, action, value, token FROM intents "
        "WHERE id NOT IN (SELECT intent_id FROM intent_answers) ORDER BY id"
    ).fetchall()
    intents = []
    for row in rows:
        try:
            action, value = IntentAction(row["action"]), json.loads(row["value"])
            if not isinstance(value, dict):
                raise TypeError(f"its value is {value!r}, not an object")
        except (ValueError, TypeError) as error:
            con.execute(
                "INSERT OR REPLACE INTO intent_answers VALUES (?, ?, 0, ?)",
                (row["id"], row["at"], f"It cannot be understood: {error}."),
            )
            continue
        intents.append(Intent(row["subject"], action, value, row["who"], row["at"], row["token"], row["id"]))
    return intents
