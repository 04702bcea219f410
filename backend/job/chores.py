"""What the supervisor does beside its second, one of a kind at a time: checks before a start, sealing, making samples again.

Each is started by the supervisor's tick and runs in the background; one that fails is told and started again by a later tick.
"""

from __future__ import annotations

import asyncio
import logging
import os
import time
from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import Any

from backend.config import RunConfig
from backend.job.bulletin import Bulletin
from backend.job.conditions import Condition
from backend.job.dataset_runner import DatasetRunner
from backend.job.ledger import Ledger
from backend.job.preflight import check
from backend.job.replica_keeper import ReplicaKeeper
from backend.job.sealing import Sealed, Sealer
from backend.job.wish_keeper import WishKeeper
from backend.records import EngineState, Severity
from backend.run_dir import RunDir

log = logging.getLogger(__name__)

_NOT_ALIVE = frozenset({EngineState.STOPPED, EngineState.RESTARTING})


class Chores:
    """Background work of one supervisor."""

    def __init__(
        self,
        run: RunDir,
        config: RunConfig,
        *,
        ledger: Ledger,
        wishes: WishKeeper,
        runners: Mapping[str, DatasetRunner],
        keepers: Sequence[ReplicaKeeper],
        bulletin: Bulletin,
    ) -> None:
        self.checked = False  # what can be seen before a start has been looked at since somebody asked for one
        self._run, self._config, self._ledger, self._wishes = run, config, ledger, wishes
        self._runners, self._keepers, self._bulletin = runners, keepers, bulletin
        self._sealer = Sealer(ledger, shard_rows=config.driver.shard_rows, shard_seconds=config.driver.shard_seconds)
        self._under_way: dict[str, asyncio.Task[None]] = {}

    @property
    def checking(self) -> bool:
        """Whether the check is under way."""
        return "checking" in self._under_way and not self._under_way["checking"].done()

    def check_before_start(self) -> None:
        """Looks for what would make a start fail. An error gives the replicas up that do not live."""
        self._begin("checking", self._check)

    def seal(self, dataset: str) -> None:
        """A dataset has ended: what is open becomes its last shard."""
        self._begin(f"sealing {dataset}", lambda: self._seal(dataset))

    def look_for_work(self, now: float) -> None:
        """Starts what is due. Call it each second, `now` in epoch seconds."""
        if any(self._sealer.is_due(name, now) for name in self._ledger.datasets()):
            self._begin("sealing", self._seal_due)
        name = next((n for n, wish in self._wishes.wishes.datasets.items() if wish.redo), None)
        if name is not None:
            self._begin("redoing", lambda: self._redo(name))

    async def finish(self, *, disk_has_room: bool) -> None:
        """Waits for what is under way and seals what is open."""
        await asyncio.gather(*self._under_way.values(), return_exceptions=True)
        if disk_has_room:
            for name in self._ledger.datasets():
                await self._seal(name)

    def _begin(self, kind: str, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        running = self._under_way.get(kind)
        if running is not None and not running.done():
            return
        if running is not None and (error := running.exception()) is not None:
            log.error("%s failed", kind, exc_info=error)
            words = f"{kind} failed ({error}): an error in Headway itself, logs/supervisor.log has it. It is tried again."
            self._bulletin.tell("run.error", "run", words[0].upper() + words[1:], Severity.ERROR)
        self._under_way[kind] = asyncio.create_task(work())

    async def _check(self) -> None:
        findings = await asyncio.to_thread(check, self._config, self._run, os.environ)
        for finding in findings:
            self._bulletin.tell("engine.check", "engine", finding.sentence, finding.severity)
        errors = [finding.sentence for finding in findings if finding.severity is Severity.ERROR]
        for keeper in self._keepers:
            if errors and keeper.state in _NOT_ALIVE:
                keeper.give_up(" ".join(errors), told=True)
        self.checked = True

    async def _redo(self, name: str) -> None:
        """Marks the samples of the asked outcomes as superseded; the next pass over the prompts finds them open again."""
        outcomes = self._wishes.wishes.datasets[name].redo
        keys = await asyncio.to_thread(lambda: list(self._ledger.outcome_keys(name, outcomes)))
        await self._ledger.supersede(name, keys, f"redo of {', '.join(outcomes)}")
        runner = self._runners[name]
        for key in keys:
            runner.forget_sample(key)
        runner.read_again()
        await self._wishes.redo_done(name, outcomes)
        words = f"{name}: {len(keys):,} samples ({', '.join(outcomes)}) are made again."
        self._bulletin.tell("dataset.redo", f"dataset:{name}", words)

    async def _seal_due(self) -> None:
        self._tell_of_seal(await self._sealer.seal_due(time.time()))

    async def _seal(self, dataset: str) -> None:
        self._tell_of_seal(await self._sealer.seal(dataset))

    def _tell_of_seal(self, sealed: Sealed) -> None:
        self._bulletin.note(Condition("ledger.unsealed", "ledger", sealed.problem, "Rows are sealed again."))
