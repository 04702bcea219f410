"""Carries sweeps of the concurrency out: one at a time, looks each second, sets the slots, writes levels down.

What a look leads to is `sweep_plan.py`'s (pure), what stands in the way `sweep_look.py`'s; how sweeps are kept and become a
curve is `backend.sweeps`'s. The wish for a sweep is not remembered for the next life: that one says that it was interrupted.
"""

from __future__ import annotations

import asyncio
import logging
import sqlite3
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any, Final

from backend import sweeps
from backend.config import RunConfig
from backend.job.dataset_runner import DatasetRunner
from backend.job.replica_keeper import ReplicaKeeper
from backend.job.slots import Slots
from backend.job.state_store import StateStore
from backend.job.sweep_look import look_at, obstacle, refuse_impossible
from backend.job.sweep_order import ImportedSweep, read_imported, read_order
from backend.job.sweep_plan import Look, SweepPlan
from backend.job.wishes import RefusedError, Wishes
from backend.records import Event, Intent, IntentAction, Severity
from backend.sweeps import Curve, SweepLevel, SweepProgress, SweepState

log = logging.getLogger(__name__)

EVERY_S: Final = 1.0


class Sweeper:
    """At most one sweep at a time. All of it belongs to the event loop."""

    def __init__(
        self,
        config: RunConfig,
        *,
        slots: Slots,
        runners: Mapping[str, DatasetRunner],
        keepers: Sequence[ReplicaKeeper],
        wishes: Callable[[], Wishes],
        store: StateStore,
        emit: Callable[[Event], None],
    ) -> None:
        self.curve: Curve | None = None  # the newest, for all replicas of the run
        self._config, self._slots, self._runners, self._keepers = config, slots, runners, keepers
        self._wishes, self._store, self._emit = wishes, store, emit
        self._asked: deque[Intent] = deque()  # accepted, not yet begun
        self._woken = asyncio.Event()
        self._plan: SweepPlan | None = None
        self._id = 0

    # -- wishes ------------------------------------------------------------------------------------------------------------

    def check(self, intent: Intent) -> None:
        """Raises RefusedError where a wish for a sweep cannot be carried out now. Other wishes are none of its business."""
        if intent.action is not IntentAction.SWEEP:
            return
        if intent.value.get("cancel"):
            if not self._is_busy:
                raise RefusedError("No sweep is running: there is nothing to cancel.")
            return
        if "measured" in intent.value:
            return
        if self._is_busy:
            raise RefusedError("A sweep is running already. Wait for its end, or cancel it first.")
        levels = read_order(intent.value).levels
        refuse_impossible(self._config, levels, self._wishes(), slots=self._slots, runners=self._runners, ready=self._ready())

    def accepted(self, intent: Intent) -> None:
        """A wish was accepted and remembered: one for a sweep is carried out by `run`."""
        if intent.action is IntentAction.SWEEP:
            self._asked.append(intent)
            self._woken.set()

    @property
    def _is_busy(self) -> bool:
        begins = (one for one in self._asked if not one.value.get("cancel") and "measured" not in one.value)
        return self._plan is not None or any(begins)

    def concurrency(self, wished: int) -> int:
        """How many requests the slots shall keep in flight: the level's while a sweep runs."""
        return wished if self._plan is None else self._plan.concurrency

    # -- the story ---------------------------------------------------------------------------------------------------------

    async def open(self) -> None:
        """Once, before anything else: says what a former life left unfinished, and finds its curve."""
        now = time.time()

        def work(con: sqlite3.Connection) -> list[sweeps.Sweep]:
            sweeps.create_tables(con)
            left = [sweep for sweep in sweeps.read_sweeps(con) if sweep.state is SweepState.RUNNING]
            for sweep in left:
                sweeps.end(con, sweep.id, SweepState.INTERRUPTED, "its supervisor ended", now)
            return left

        for sweep in await self._ask(work) or []:
            kept = f"{len(sweep.levels)} of {len(sweep.asked)} levels are kept"
            self._tell(SweepState.INTERRUPTED, f"The sweep was interrupted, as its supervisor ended; {kept}.")
        await self._read_curve()

    async def run(self) -> None:
        """Looks each second, for ever."""
        while True:
            with suppress(TimeoutError):
                await asyncio.wait_for(self._woken.wait(), EVERY_S)
            self._woken.clear()
            try:
                while self._asked:
                    await self._carry_out(self._asked.popleft())
                if self._plan is not None:
                    await self._step(self._plan)
            except Exception:
                log.exception("the sweep cannot go on")
                if self._plan is not None:  # else the newest one has ended, as it says
                    await self._end(SweepState.ENDED, "an error in Headway itself; logs/supervisor.log has it")

    async def close(self) -> None:
        """The supervisor leaves."""
        if self._plan is not None:
            await self._end(SweepState.ENDED, "the run stopped")

    async def _carry_out(self, intent: Intent) -> None:
        if "measured" in intent.value:
            await self._import(intent, read_imported(intent.value))
        elif not intent.value.get("cancel"):
            await self._begin(intent)
        elif self._plan is not None:
            await self._end(SweepState.CANCELLED, f"{intent.who} cancelled it")

    async def _begin(self, intent: Intent) -> None:
        lives = {keeper.name: keeper.endpoint.launch for keeper in self._ready() if keeper.endpoint is not None}
        if not lives:
            self._tell(SweepState.ENDED, "The sweep did not begin: no replica is ready any more.", Severity.WARNING)
            return
        order = read_order(intent.value)
        self._plan = plan = SweepPlan(order, lives, time.monotonic())
        self._id = await self._ask(
            lambda con: sweeps.begin(
                con,
                at=time.time(),
                who=intent.who,
                asked=order.levels,
                level_limit_s=order.level_limit_s,
                replicas=len(lives),
            )
        ) or 0  # fmt: skip
        how = "requests in flight finish first" if order.drain else "requests beyond the first level are aborted"
        levels = ", ".join(map(str, order.levels))
        words = f"A sweep measures {levels} requests in flight, up to {order.level_limit_s:g} s each; {how}."
        self._emit(Event(time.time(), "sweep.started", "run", words, who=intent.who))
        self._set_slots(plan.concurrency)

    async def _step(self, plan: SweepPlan) -> None:
        step = plan.step(self._look())
        if step.abort_beyond is not None:
            self._slots.abort_newest(step.abort_beyond)
        if step.level is not None:
            await self._keep(step.level)
        if step.ended is not None:
            await self._end(*step.ended)
        else:
            self._set_slots(plan.concurrency)
            await self._note_progress(plan)

    async def _keep(self, level: SweepLevel) -> None:
        sweep_id = self._id
        await self._ask(lambda con: sweeps.add_level(con, sweep_id, level))
        within = ""
        if level.half_width_tokens_per_s is not None:
            within = f" ± {level.half_width_tokens_per_s / level.tokens_per_s:.1%}"
        words = f"{level.concurrency} in flight: {level.tokens_per_s:,.0f} tokens/s{within}"
        self._emit(Event(time.time(), "sweep.level", "run", f"{words}{'' if level.known else ' (its time was up)'}."))

    async def _end(self, state: SweepState, reason: str | None) -> None:
        """The sweep is over; the slots go back to what is wished."""
        sweep_id, self._plan = self._id, None
        self._set_slots(self._wishes().concurrency)
        now = time.time()
        await self._ask(lambda con: sweeps.end(con, sweep_id, state, reason, now))
        await self._read_curve()
        back = f"Back to {self._wishes().concurrency} requests in flight."
        if state is SweepState.FINISHED:
            self._tell(state, f"The sweep is finished. {back}")
        else:
            severity = Severity.INFO if state is SweepState.CANCELLED else Severity.WARNING
            self._tell(state, f"The sweep ended early: {reason}. {back}", severity)

    async def _import(self, intent: Intent, imported: ImportedSweep) -> None:
        def work(con: sqlite3.Connection) -> None:
            sweep_id = sweeps.begin(
                con,
                at=time.time(),
                who=intent.who,
                source=imported.source,
                asked=[level.concurrency for level in imported.levels],
                level_limit_s=None,
                replicas=imported.replicas,
            )
            for level in imported.levels:
                sweeps.add_level(con, sweep_id, level)
            sweeps.end(con, sweep_id, SweepState.FINISHED, None, time.time())

        await self._ask(work)
        await self._read_curve()

    # -- looking -----------------------------------------------------------------------------------------------------------

    def _ready(self) -> list[ReplicaKeeper]:
        return [keeper for keeper in self._keepers if keeper.endpoint is not None]

    def _look(self) -> Look:
        now, clock = time.time(), time.monotonic()
        return Look(
            at_s=clock,
            in_flight=self._slots.in_flight(),
            replicas=tuple(look_at(keeper, keeper.endpoint, clock - now) for keeper in self._keepers if keeper.endpoint),
            obstacle=obstacle(self._wishes(), self._slots, self._runners),
            first_tokens=[(started_at + clock - now, seconds) for started_at, seconds in self._slots.tally.first_tokens],
        )

    # -- writing -----------------------------------------------------------------------------------------------------------

    def _set_slots(self, concurrency: int) -> None:
        if self._slots.concurrency != concurrency:
            self._slots.concurrency = concurrency
            self._slots.changed()

    async def _note_progress(self, plan: SweepPlan) -> None:
        rate = plan.rate
        progress = SweepProgress(
            level=plan.concurrency,
            stage=plan.stage.value,
            in_flight=self._slots.in_flight(),
            since=time.time() - (time.monotonic() - plan.since_s),
            tokens_per_s=rate.tokens_per_s if rate else None,
            half_width_tokens_per_s=rate.half_width if rate else None,
        )
        sweep_id = self._id
        await self._ask(lambda con: sweeps.note_progress(con, sweep_id, progress))

    async def _read_curve(self) -> None:
        found = await self._ask(sweeps.read_sweeps)
        if found is not None:
            self.curve = sweeps.newest_curve(found, len(self._keepers))

    async def _ask(self, work: Callable[[sqlite3.Connection], Any]) -> Any:
        """What the work answers, on the database's thread; None where the database cannot be used (that is logged there)."""
        answers: list[Any] = []
        await self._store.run(lambda con: answers.append(work(con)))
        return answers[0] if answers else None

    def _tell(self, state: SweepState, words: str, severity: Severity = Severity.INFO) -> None:
        self._emit(Event(time.time(), f"sweep.{state}", "run", words, severity))
