"""The supervisor's side of state.sqlite: heartbeat, events, answers to intents, and reading new intents.

All of it happens on one thread of its own, so that a page that holds the database, or a slow disk, never stops the event loop.
Losing a write here loses history, never samples: a failed one is logged and the job goes on.
"""

from __future__ import annotations

import asyncio
import json
import logging
import sqlite3
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from typing import Any, TypeVar

from backend.records import Event, Intent, IntentAction, JobStatus, RunPhase
from backend.run_dir import RunDir, open_state

log = logging.getLogger(__name__)
T = TypeVar("T")


class StateStore:
    """state.sqlite, written from the event loop without waiting in it."""

    def __init__(self, run: RunDir) -> None:
        """Opens the database (made anew where it is missing)."""
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="state")
        self._con = self._thread.submit(open_state, run).result()
        self._failures = 0

    async def heartbeat(self, *, at: float, pid: int, life: int, status: JobStatus) -> None:
        """The one row that says: alive, and this is how it goes."""
        values = (at, pid, life, status.phase.value, json.dumps(asdict(status)))
        await self._try(lambda con: con.execute("INSERT OR REPLACE INTO heartbeat VALUES (1, ?, ?, ?, ?, ?)", values))

    async def record(self, events: Sequence[Event]) -> None:
        """Events, in order."""
        rows = [(e.at, e.kind, e.subject, e.severity.value, e.message, e.who, json.dumps(dict(e.details))) for e in events]
        sql = "INSERT INTO events (at, kind, subject, severity, message, who, details) VALUES (?, ?, ?, ?, ?, ?, ?)"
        await self._try(lambda con: con.executemany(sql, rows))

    async def new_intents(self) -> list[Intent]:
        """Intents that nobody has answered yet, oldest first. One that cannot be read is answered here, as refused."""
        return await self._try(_new_intents) or []

    async def answer(self, intent_id: int, *, at: float, accepted: bool, message: str) -> None:
        """What became of an intent."""
        values = (intent_id, at, int(accepted), message)
        await self._try(lambda con: con.execute("INSERT OR REPLACE INTO intent_answers VALUES (?, ?, ?, ?)", values))

    async def run(self, work: Callable[[sqlite3.Connection], Any]) -> None:
        """Any other work on the database (telemetry), on its thread; it makes its own transactions."""
        await self._try(work, own_transactions=True)

    def close(self) -> None:
        """Waits for what is under way and closes."""
        self._thread.submit(self._con.close).result()
        self._thread.shutdown()

    async def _try(self, work: Callable[[sqlite3.Connection], T], *, own_transactions: bool = False) -> T | None:
        call = (work, self._con) if own_transactions else (self._in_transaction, work)
        try:
            result: T = await asyncio.get_running_loop().run_in_executor(self._thread, *call)
        except sqlite3.Error as error:
            self._failures += 1
            if self._failures in (1, 10) or self._failures % 600 == 0:
                log.warning("state.sqlite cannot be written or read (%s times so far): %s", self._failures, error)
            return None
        self._failures = 0
        return result

    def _in_transaction(self, work: Callable[[sqlite3.Connection], T]) -> T:
        self._con.execute("BEGIN IMMEDIATE")
        try:
            result = work(self._con)
        except BaseException:
            self._con.execute("ROLLBACK")
            raise
        self._con.execute("COMMIT")
        return result


def last_status(run: RunDir) -> RunPhase | None:
    """The phase of the former life's last heartbeat; None without one."""
    con = open_state(run)
    try:
        row = con.execute("SELECT phase FROM heartbeat").fetchone()
    finally:
        con.close()
    return RunPhase(row["phase"]) if row else None


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
