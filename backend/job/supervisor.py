"""The story of the job: take over what a former life left, then each second look, decide, act and say how it goes.

What to do is decided in `reconcile.py` (pure), what is wanted kept by `wish_keeper.py`; requests are kept in flight by
`slots.py`, servers watched by `replica_keeper.py`, finished samples owned by `ledger.py`. This module connects them.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import time
from collections.abc import Callable, Coroutine, Sequence
from contextlib import suppress
from typing import Any, Final

import aiohttp

from backend.config import RunConfig
from backend.heartbeat import ENDED
from backend.holds import lifts
from backend.job import reconcile as plan
from backend.job.bulletin import Bulletin
from backend.job.conditions import conditions
from backend.job.crew import gather, restart_policy
from backend.job.dataset_runner import DatasetRunner
from backend.job.disk import DiskWatch
from backend.job.gates import Gates
from backend.job.ledger import Ledger
from backend.job.rates import Window
from backend.job.replica_keeper import ReplicaKeeper
from backend.job.situation import job_status, observed
from backend.job.state_store import StateStore
from backend.job.take_over import take_over
from backend.job.wish_keeper import WishKeeper
from backend.job.wishes import Want
from backend.records import DatasetState, EngineState, Intent, RunPhase, Severity
from backend.run_dir import RunDir

log = logging.getLogger(__name__)

TICK_S: Final = 1.0
GATHER_S: Final = 0.05  # what happens together is looked at together
RATE_WINDOW_S: Final = 60.0
AT_WORK: Final = frozenset({DatasetState.WAITING, DatasetState.RUNNING, DatasetState.DRAINING})
OUT_OF_PLAN: Final = frozenset({DatasetState.HELD, DatasetState.FAILED})  # by nobody's wish
LIVES_FACT: Final = "lives"


class Supervisor:
    """One run's process that works. Made inside the event loop; `run` returns the exit code."""

    def __init__(
        self, run: RunDir, config: RunConfig, ledger: Ledger, store: StateStore, session: aiohttp.ClientSession
    ) -> None:
        self.run_dir, self.config, self.ledger, self.store, self.session = run, config, ledger, store, session
        self.life = int(ledger.get_fact(LIVES_FACT) or 0) + 1
        self.phase = RunPhase.STARTING
        self.phase_reason: str | None = None
        self.exit_code: int | None = None
        self._woken = asyncio.Event()
        self.bulletin = Bulletin(run, store, self.life, on_event=self._woken.set)
        self.policy = restart_policy(config)
        self.keeper_of_wishes = WishKeeper(
            config,
            ledger,
            store,
            emit=self.bulletin.emit,
            on_change=self._on_intent,
            check=self._check_intent,
        )
        crew = gather(
            run,
            config,
            ledger=ledger,
            store=store,
            session=session,
            wishes=self.keeper_of_wishes,
            bulletin=self.bulletin,
            on_idle=self._woken.set,
        )
        self.runners, self.keepers, self.slots, self.apis = crew.runners, crew.keepers, crew.slots, crew.apis
        self.journal, self.chores, self.sweeper = crew.journal, crew.chores, crew.sweeper
        self.sampler, self.forecaster = crew.sampler, crew.forecaster
        self.gates = Gates(crew)
        self._rates = Window(RATE_WINDOW_S)
        self._signals = 0
        self._stopping_since: float | None = None
        self._disk = DiskWatch((run.root, run.shards), config.driver.disk_floor_gb)
        self._disk_problem: str | None = None

    # -- the story -----------------------------------------------------------------------------------------------------------

    async def run(self) -> int:
        """Works until the run is finished, stopped or has failed. Returns 0, or 1 for failed."""
        await self.ledger.set_fact(LIVES_FACT, str(self.life))
        self.bulletin.tell("run.started", "run", f"Supervisor started (life {self.life}, pid {os.getpid()}).")
        self._listen_to_signals()
        await self._publish()
        await self.sweeper.open()
        await self.apis.open()
        await self.keeper_of_wishes.read()
        await self.forecaster.open()
        await take_over(self.keepers, self.journal, self.session, self.bulletin, give_sign=self._publish)
        if any(keeper.owned and keeper.state is EngineState.STOPPED for keeper in self.keepers):
            self.chores.check_before_start()
        works: list[Callable[[], Coroutine[Any, Any, None]]] = [
            self.keeper_of_wishes.run,
            self.slots.run,
            self.slots.read_ahead,
        ]
        works += [self.sampler.run, self.sweeper.run, *self.apis.works(), *(keeper.watch for keeper in self.keepers)]
        background = [asyncio.create_task(work()) for work in works]
        try:
            while self.phase not in ENDED:
                await self._tick()
                _raise_failures(background)
                await self._pause()
        except Exception:
            if not self.run_dir.root.exists():
                await self._end_servers()
            raise
        finally:
            await self._leave(background)
        return self.exit_code or 0

    async def _pause(self) -> None:
        """A second, or less when something has happened: what follows from it should not wait."""
        with suppress(TimeoutError):
            await asyncio.wait_for(self._woken.wait(), TICK_S)
            await asyncio.sleep(GATHER_S)
        self._woken.clear()

    async def _tick(self) -> None:
        now = time.time()
        self._disk_problem = self._disk.problem() or self.slots.tally.store_failure
        self._watch_requests()
        for guarded in self.runners.values():
            await guarded.keep_holds()
        actions = self._decide(now)
        if any(isinstance(action, plan.SetPhase) and action.phase in ENDED for action in actions):
            await self.keeper_of_wishes.try_to_read()  # who killed the last dataset may have revived it since
            actions = self._decide(now)
        for action in actions:
            self._act(action)
        self._update_slots()
        self.chores.look_for_work(now)
        self.forecaster.look(self.keeper_of_wishes.wishes, self.sweeper.curve)
        self._note_conditions(now)
        tally = self.slots.tally
        self._rates.add(now, tally.finished, tally.completion_tokens, tally.finished - tally.rejected)
        await self._publish()

    def _decide(self, now: float) -> list[plan.Action]:
        seen = observed(
            self.phase,
            self.keepers,
            self.runners,
            checking=self.chores.checking,
            drain_overdue=self._is_drain_overdue(now),
            apis_work=self.apis.work_is_left(self.keeper_of_wishes.wishes),
        )
        return plan.reconcile(self.keeper_of_wishes.wishes, seen, self.policy, now)

    async def _leave(self, background: Sequence[asyncio.Task[None]]) -> None:
        for task in background:
            task.cancel()
        await self.sweeper.close()
        await asyncio.gather(self.slots.close(), self.apis.close())
        await asyncio.gather(*background, return_exceptions=True)
        await self.chores.finish(disk_has_room=self._disk_problem is None)
        await self.forecaster.finish(run_is_done=self.phase is RunPhase.FINISHED)
        self.exit_code = 0 if self.phase in (RunPhase.FINISHED, RunPhase.STOPPED) else 1
        words = {
            RunPhase.FINISHED: "The run is finished.",
            RunPhase.STOPPED: "The run was stopped; `start` goes on where it was.",
        }.get(self.phase, f"The run cannot go on. {self.phase_reason or 'The events before this one say why.'}")
        self.bulletin.tell(f"run.{self.phase}", "run", words, Severity.ERROR if self.exit_code else Severity.INFO)
        self.sampler.close()
        self.journal.close()
        await self._publish()

    async def _end_servers(self) -> None:
        """Somebody removed the run's folder: no later supervisor could prove that these servers are ours and end them."""
        ends = [keeper.replica.stop(deadline_s=0) for keeper in self.keepers if keeper.owned]
        await asyncio.gather(*ends, return_exceptions=True)

    # -- looking -------------------------------------------------------------------------------------------------------------

    def _is_drain_overdue(self, now: float) -> bool:
        if self.keeper_of_wishes.wishes.run is not Want.STOPPED:
            self._stopping_since = None
            return False
        self._stopping_since = self._stopping_since or now
        return now - self._stopping_since >= self.config.driver.drain_limit_s

    def _watch_requests(self) -> None:
        for keeper in self.keepers:
            if keeper.lost_requests:
                keeper.lost_requests = False
                count = self.slots.send_again(keeper.name)
                words = f"Replica {keeper.name} has forgotten {count} requests (it runs and queues none); they are sent again."
                self.bulletin.tell("engine.lost_requests", f"engine:{keeper.name}", words, Severity.WARNING)
        for runner in self.runners.values():
            for sample_id in runner.admission.to_cancel():
                self.slots.abort_one(runner.name, str(sample_id))
                self.apis.abort_one(runner.name, str(sample_id))

    # -- acting --------------------------------------------------------------------------------------------------------------

    def _act(self, action: plan.Action) -> None:
        match action:
            case plan.SetDatasetState(name, state, reason):
                self._set_dataset_state(self.runners[name], state, reason)
            case plan.AbortDataset(name):
                self.slots.abort(name)
                self.apis.abort(name)
            case plan.SetPhase(phase, reason):
                self.phase, self.phase_reason = phase, reason
                log.info("phase %s%s", phase, f": {reason}" if reason else "")
            case plan.Launch(name):
                if self.chores.checked:
                    self._keeper(name).launch()
                else:
                    self.chores.check_before_start()
            case plan.StopReplica(name, reason):
                self._keeper(name).stop(reason)
            case plan.AwaitRestart(name):
                self._keeper(name).await_restart(self.policy)
            case plan.GiveUpReplica(name, reason):
                self._keeper(name).give_up(reason)

    def _set_dataset_state(self, runner: DatasetRunner, state: DatasetState, reason: str | None) -> None:
        before, runner.state, runner.reason = runner.state, state, reason
        if state in AT_WORK and before in AT_WORK:
            # Slots fill and drain all the time, above all near a budget: only the beginning is worth a word.
            if state is not DatasetState.RUNNING or runner.begun:
                return
            runner.begun = True
        severity = {DatasetState.FAILED: Severity.ERROR, DatasetState.HELD: Severity.WARNING}.get(state, Severity.INFO)
        words = f"{runner.name}: {before} → {state}" + (f" ({reason})" if reason else "")
        self.bulletin.tell(f"dataset.{state}", f"dataset:{runner.name}", words, severity)
        if state is DatasetState.DONE:
            self.forecaster.dataset_done(runner.name)
        else:
            self.forecaster.changed(words, plan=not OUT_OF_PLAN.isdisjoint((before, state)))
        if state in plan.ENDED:
            self.chores.seal(runner.name)

    def _update_slots(self) -> None:
        at_work = self.phase in (RunPhase.STARTING, RunPhase.RUNNING)
        self.gates.set(self.keeper_of_wishes.wishes, open_for_all=at_work and self._disk_problem is None)

    def _check_intent(self, intent: Intent) -> None:
        self.sweeper.check(intent)
        self.apis.check(intent)

    def _on_intent(self, intent: Intent) -> None:
        if intent.value.get("want") == Want.RUNNING and intent.subject in ("engine", "run"):
            for keeper in self.keepers:
                keeper.forgive()
            self.chores.checked = False
        runner = self.runners.get(intent.subject.removeprefix("dataset:"))
        if runner is not None and intent.value.get("want") == Want.RUNNING:
            runner.forgive()
            if lifts(intent, runner.name) and (words := runner.guard.go_on()):
                self.bulletin.tell("dataset.goes_on", intent.subject, f"{runner.name} {words}", who=intent.who)
        self.sweeper.accepted(intent)
        self.apis.accepted(intent)
        self._update_slots()

    def _keeper(self, name: str) -> ReplicaKeeper:
        return next(keeper for keeper in self.keepers if keeper.name == name)

    # -- saying --------------------------------------------------------------------------------------------------------------

    def _note_conditions(self, now: float) -> None:
        for condition in conditions(
            now,
            self.config.engine,
            disk_problem=self._disk_problem,
            tally=self.slots.tally,
            keepers=self.keepers,
            runners=self.runners.values(),
        ):
            self.bulletin.note(condition)
        for condition in self.apis.conditions(self.keeper_of_wishes.wishes):
            self.bulletin.note(condition)

    async def _publish(self) -> None:
        status = job_status(
            self.phase,
            self.keeper_of_wishes.wishes,
            keepers=self.keepers,
            runners=self.runners,
            ledger=self.ledger,
            lately=self._rates,
            admission_stopped=self._disk_problem,
            prometheus_url=self.sampler.prometheus_url,
            exit_code=self.exit_code,
            apis=self.apis.status(self.keeper_of_wishes.wishes),
        )
        await self.bulletin.publish(status)

    def _listen_to_signals(self) -> None:
        def stop() -> None:
            self._signals += 1
            self.keeper_of_wishes.ask_to_stop(now=self._signals > 1)
            how = "at once" if self._signals > 1 else "after the requests in flight"
            self.bulletin.tell("run.signal", "run", f"A signal asks to stop {how}.", who="signal")

        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(number, stop)


def _raise_failures(tasks: Sequence[asyncio.Task[None]]) -> None:
    """A background task that has ended has failed: the supervisor must not go on without it."""
    for task in tasks:
        if task.done():
            task.result()
            raise RuntimeError(f"{task.get_coro()} ended")
