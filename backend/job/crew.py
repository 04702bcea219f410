"""Makes what a supervisor owns from the configuration: the datasets at work, the slots, the keepers of replicas, and who works
beside them. Only construction: who uses them how is told in `supervisor.py`.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from dataclasses import dataclass

import aiohttp

from backend.config import EngineKind, RunConfig
from backend.job.apis import Apis
from backend.job.bulletin import Bulletin
from backend.job.chores import Chores
from backend.job.dataset_runner import DatasetRunner
from backend.job.engine import build_replicas
from backend.job.forecaster import Forecaster
from backend.job.in_flight import InFlightJournal
from backend.job.ledger import Ledger
from backend.job.reconcile import RestartPolicy
from backend.job.replica_keeper import ReplicaKeeper
from backend.job.sampler import Sampler
from backend.job.slots import Slots
from backend.job.state_store import StateStore
from backend.job.sweep import Sweeper
from backend.job.wish_keeper import WishKeeper
from backend.job.wishes import Wishes
from backend.records import Event
from backend.run_dir import RunDir


@dataclass(frozen=True, slots=True)
class Crew:
    """Everybody who works under one supervisor."""

    runners: dict[str, DatasetRunner]
    journal: InFlightJournal
    slots: Slots
    keepers: list[ReplicaKeeper]
    apis: Apis
    sweeper: Sweeper
    chores: Chores
    sampler: Sampler
    forecaster: Forecaster


def gather(
    run: RunDir,
    config: RunConfig,
    *,
    ledger: Ledger,
    store: StateStore,
    session: aiohttp.ClientSession,
    wishes: WishKeeper,
    bulletin: Bulletin,
    on_idle: Callable[[], None],
) -> Crew:
    """Nothing is started. `on_idle` hears that a dataset has nothing in flight any more."""
    runners = make_runners(run, config, ledger, wishes.wishes)
    journal = InFlightJournal(run.in_flight)
    slots = make_slots(config, wishes.wishes, runners=runners, ledger=ledger, journal=journal, session=session, on_idle=on_idle)
    keepers = make_keepers(run, config, slots, session, bulletin.emit)
    apis = Apis(
        run,
        config,
        runners=runners,
        ledger=ledger,
        journal=journal,
        session=session,
        engine=slots,
        store=store,
        bulletin=bulletin,
    )
    return Crew(
        runners=runners,
        journal=journal,
        slots=slots,
        keepers=keepers,
        apis=apis,
        sweeper=Sweeper(
            config,
            slots=slots,
            runners=runners,
            keepers=keepers,
            wishes=lambda: wishes.wishes,
            store=store,
            emit=bulletin.emit,
        ),
        chores=Chores(run, config, ledger=ledger, wishes=wishes, runners=runners, keepers=keepers, bulletin=bulletin),
        sampler=Sampler(run, config, slots=slots, keepers=keepers, store=store, emit=bulletin.emit),
        forecaster=Forecaster(
            run, slots=slots, apis=apis.slots, keepers=keepers, store=store, bulletin=bulletin, wishes=wishes.wishes
        ),
    )


def restart_policy(config: RunConfig) -> RestartPolicy:
    """When a replica is started again."""
    engine = config.engine
    return RestartPolicy(engine.restart_backoff_s, engine.restart_backoff_max_s, engine.max_restarts, engine.restart_window_s)


def make_runners(run: RunDir, config: RunConfig, ledger: Ledger, wishes: Wishes) -> dict[str, DatasetRunner]:
    """One for each dataset, as far as the ledger says it is."""
    return {d.name: DatasetRunner(config, d, ledger, base=run.root, wish=wishes.datasets[d.name]) for d in config.datasets}


def make_slots(
    config: RunConfig,
    wishes: Wishes,
    *,
    runners: dict[str, DatasetRunner],
    ledger: Ledger,
    journal: InFlightJournal,
    session: aiohttp.ClientSession,
    on_idle: Callable[[], None],
) -> Slots:
    """The requests of the run, none yet."""
    return Slots(
        driver=config.driver,
        runners=runners,
        ledger=ledger,
        journal=journal,
        session=session,
        model=config.model.served_name or config.model.path,
        now=time.time,
        concurrency=wishes.concurrency,
        order=wishes.order,
        pilot_samples=config.forecast.pilot_samples,
        on_idle=on_idle,
    )


def make_keepers(
    run: RunDir, config: RunConfig, slots: Slots, session: aiohttp.ClientSession, emit: Callable[[Event], None]
) -> list[ReplicaKeeper]:
    """One for each replica, none started."""
    engine = config.engine

    def counter(name: str) -> Callable[[], tuple[int, int]]:
        def in_flight_and_answered() -> tuple[int, int]:
            tally = slots.replicas.get(name)
            return (tally.in_flight, tally.answered) if tally else (0, 0)

        return in_flight_and_answered

    return [
        ReplicaKeeper(
            replica,
            session,
            owned=engine.kind is not EngineKind.ATTACHED,
            stall_after_s=engine.stall_after_s,
            stop_deadline_s=engine.stop_deadline_s,
            in_flight_and_answered=counter(replica.name),
            emit=emit,
            now=time.time,
            clock=time.monotonic,
        )
        for replica in build_replicas(config, run, os.environ)
    ]
