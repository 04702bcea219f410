"""Datasets that go to the simulator's API, all in this event loop: no engine, no supervisor, the real ledger."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import aiohttp

from backend.config import RunConfig
from backend.job.apis import Apis
from backend.job.bulletin import Bulletin
from backend.job.dataset_runner import DatasetRunner
from backend.job.in_flight import InFlightJournal
from backend.job.ledger import Ledger
from backend.job.routes import parse_route
from backend.job.slots import Slots
from backend.job.state_store import StateStore
from backend.job.wishes import Wishes, initial
from backend.records import ApiStatus, Row
from backend.rows import row_from_record
from backend.run_dir import RunDir, open_ledger
from backend.simulator.curve import API_CURVE, SpeedCurve
from backend.simulator.lengths import LengthRule
from backend.simulator.server import SimulatedServer
from backend.simulator.settings import Prices, Profile, Settings
from tests.job.made_job import make_config, make_run_dir, make_runners

PRICES = Prices(input_usd_per_mtok=0.5, output_usd_per_mtok=2.0, cached_usd_per_mtok=0.05)
API = {
    "model": "sim/model",
    "input_usd_per_mtok": 0.5,
    "output_usd_per_mtok": 2.0,
    "cached_input_usd_per_mtok": 0.05,
    "stall_after_s": 5,
}


@dataclass
class ApiJob:
    """One run's part that works with an API named `a`."""

    run: RunDir
    config: RunConfig
    server: SimulatedServer
    apis: Apis
    runners: dict[str, DatasetRunner]
    wishes: Wishes
    ledger: Ledger
    journal: InFlightJournal
    events: list[tuple[str, str]]

    def want(self, dataset: str, **changes: Any) -> None:
        """Another wish for a dataset, carried out at once."""
        wish = replace(self.wishes.datasets[dataset], **changes)
        self.wishes = replace(self.wishes, datasets={**self.wishes.datasets, dataset: wish})
        self.apis.update(self.wishes, admitting=True)

    def route(self, dataset: str, to: str) -> None:
        self.want(dataset, route=parse_route(to, self.config.api))

    def fault(self, name: str, argument: str | None = None, *, on: bool = True) -> None:
        from backend.simulator.faults import parse_fault

        if on:
            self.server.server_faults.switch_on(parse_fault(name, argument))
        else:
            self.server.server_faults.switch_off(name)

    @property
    def status(self) -> ApiStatus:
        return self.apis.status(self.wishes)[0]

    def finished(self, dataset: str = "A") -> int:
        """Samples that are made and through with everything."""
        return self.ledger.totals(dataset).samples - self.runners[dataset].storing

    def is_settled(self) -> bool:
        """Nothing is set aside any more, and what was billed without a sample stands in the ledger."""
        return self.status.reserved_usd == 0 and not any(slots.billing.is_open for slots in self.apis.slots.values())

    async def until(self, seen: Callable[[], Any], what: str = "", limit_s: float = 30.0) -> None:
        """Polls until `seen` is true; the supervisor's second goes on meanwhile."""
        deadline = time.monotonic() + limit_s
        while not seen():
            assert time.monotonic() < deadline, f"{what}: {self.status}"
            self.apis.update(self.wishes, admitting=True)
            await asyncio.sleep(0.02)

    def rows(self) -> list[Row]:
        with closing(open_ledger(self.run, read_only=True)) as con:
            return [row_from_record(dict(record)) for record in con.execute("SELECT * FROM open_rows")]

    def bills(self) -> list[dict[str, Any]]:
        with closing(open_ledger(self.run, read_only=True)) as con:
            return [dict(record) for record in con.execute("SELECT * FROM billed_attempts")]

    def booked_usd(self) -> float:
        """What rows and billed failures come to."""
        return sum(row.cost_usd or 0.0 for row in self.rows()) + sum(bill["cost_usd"] or 0.0 for bill in self.bills())


@asynccontextmanager
async def api_job(
    folder: Path,
    datasets: Mapping[str, Sequence[Any]],
    *,
    api: Mapping[str, Any] | None = None,
    server: Mapping[str, Any] | None = None,
    routed: bool = True,
    mean: float = 60,
    **settings: Any,
) -> AsyncIterator[ApiJob]:
    """The job at work; `routed`: every dataset goes to `a` from the beginning. `server`: fields of the simulator's Settings."""
    given: dict[str, Any] = {"port": 0, "speed": 100, "profile": Profile.API, "prices": PRICES, "chunk_tokens": 25}
    given["curve"] = SpeedCurve.parse(API_CURVE)
    given |= {"max_running_requests": 2_000, "rules": (LengthRule(mean=mean, log_sd=0.5),)} | dict(server or {})
    async with SimulatedServer(Settings(**given)) as simulated, aiohttp.ClientSession() as session:
        config = make_config(
            folder,
            datasets,
            **{
                "generation": {"max_new_tokens": 300},
                "driver": {"retry_backoff_s": 0.05, "retry_backoff_max_s": 0.2},
                "api": {"a": {"base_url": f"{simulated.url}/v1", **API, **(api or {})}},
                **settings,
            },
        )
        run = make_run_dir(folder) if not (folder / "run").exists() else RunDir(folder / "run")
        ledger, store, journal = Ledger.open(run), StateStore(run), InFlightJournal(run.in_flight)
        runners = make_runners(config, ledger)
        events: list[tuple[str, str]] = []
        engine = Slots(
            driver=config.driver, runners=runners, ledger=ledger, journal=journal, session=session, model="m", now=time.time,
            concurrency=config.generation.concurrency, order=[dataset.name for dataset in config.datasets],
        )  # fmt: skip
        bulletin = Bulletin(run, store, 1, on_event=lambda: None)
        emit = bulletin.emit
        bulletin.emit = lambda event: (events.append((event.kind, event.message)), emit(event))[1]  # type: ignore[method-assign,func-returns-value]
        apis = Apis(
            run, config, runners=runners, ledger=ledger, journal=journal, session=session, engine=engine, store=store,
            bulletin=bulletin,
        )  # fmt: skip
        await apis.open()
        job = ApiJob(run, config, simulated, apis, runners, initial(config), ledger, journal, events)
        if routed:
            for name in datasets:
                job.route(name, "a")
        tasks = [asyncio.create_task(work()) for work in (*apis.works(), engine.read_ahead)]
        try:
            yield job
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            await apis.close()
            await ledger.close()
            store.close()
            journal.close()
