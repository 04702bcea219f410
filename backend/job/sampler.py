"""Telemetry, once a second: engine, driver, GPUs and host are asked, written down and published together.

How each is asked is told in `engine_probe.py`, `gpu.py` and `host.py`; what is kept in `backend.telemetry`, what a Prometheus
sees in `exporter.py`. Each minute what was written is rolled up.
"""

from __future__ import annotations

import asyncio
import logging
import os
import time
from collections.abc import Callable, Sequence
from typing import Final

from backend import telemetry_store
from backend.config import EngineKind, RunConfig
from backend.job.alarms import Alarms
from backend.job.exporter import ADDRESS, DatasetFigures, EngineFigures, Exporter, ExporterError, RunFigures
from backend.job.gpu import GpuReader, visible_gpus
from backend.job.gpu_watch import GpuWatch
from backend.job.host import HostReader
from backend.job.rates import Window
from backend.job.replica_keeper import ReplicaKeeper
from backend.job.slots import Slots
from backend.job.state_store import StateStore
from backend.records import EngineState, Event, Severity
from backend.run_dir import RunDir
from backend.telemetry import DriverSample, GpuSample, Sample

log = logging.getLogger(__name__)

EVERY_S: Final = 1.0
ROLL_UP_EVERY_S: Final = 60.0
RECENT_S: Final = 300.0  # "the last minutes" of the mean completion length
RATE_S: Final = 10.0
ALL: Final = "run"  # the key of the sample over all datasets


class Sampler:
    """Asks and writes. Nothing here may stop the job: what cannot be read is missing."""

    def __init__(
        self,
        run: RunDir,
        config: RunConfig,
        *,
        slots: Slots,
        keepers: Sequence[ReplicaKeeper],
        store: StateStore,
        emit: Callable[[Event], None],
    ) -> None:
        self._slots, self._keepers, self._store, self._emit = slots, keepers, store, emit
        self._name = config.name
        self._exporter = Exporter()
        self.prometheus_url: str | None = None
        self._prometheus_port = config.telemetry.prometheus_port
        self._host = HostReader(run.root)
        named = config.engine.gpus if config.engine.gpus is not None else visible_gpus(os.environ)
        wanted = config.telemetry.gpu and config.engine.kind is not EngineKind.ATTACHED
        self._gpus = GpuWatch(GpuReader(named), emit) if wanted else None
        self._alarms = Alarms()
        self._quick = {key: Window(RATE_S) for key in (ALL, *slots.runners)}
        self._recent = {key: Window(RECENT_S) for key in (ALL, *slots.runners)}

    async def run(self) -> None:
        """Samples for ever."""
        await self._store.run(telemetry_store.create_tables)
        self._offer_metrics()
        roll_up_at = time.monotonic() + ROLL_UP_EVERY_S
        due = time.monotonic()
        while True:
            try:
                samples = await self._sample(time.time())
                self._publish(samples)
                await self._store.run(lambda con, rows=samples: telemetry_store.write(con, rows))  # type: ignore[misc]
                if time.monotonic() >= roll_up_at:
                    roll_up_at += ROLL_UP_EVERY_S
                    await self._store.run(lambda con: telemetry_store.roll_up(con, time.time()))
            except Exception:
                if self._note_failure("Telemetry cannot be taken: an error in Headway itself; logs/supervisor.log has it."):
                    log.exception("telemetry could not be taken")
            else:
                self._note_failure(None)
            due = max(due + EVERY_S, time.monotonic())
            await asyncio.sleep(due - time.monotonic())

    async def _sample(self, now: float) -> list[Sample]:
        samples: list[Sample] = [
            keeper.sample for keeper in self._keepers if keeper.sample is not None and keeper.state in _WITH_SAMPLES
        ]
        samples += self._driver_samples(now)
        samples.append(self._host.read(now))
        if self._gpus is not None:
            samples += await self._gpus.read(now)
        return samples

    def _note_failure(self, problem: str | None) -> bool:
        """Whether this is news."""
        over = "Telemetry is taken again."
        events = self._alarms.update(time.time(), "telemetry.failed", "run", problem, over=over)
        for event in events:
            self._emit(event)
        return bool(events)

    def _driver_samples(self, now: float) -> list[DriverSample]:
        slots = self._slots
        samples = []
        finished = tokens = prompt_tokens = rejected = 0
        for name, runner in slots.runners.items():
            totals = slots.ledger.totals(name)
            finished += totals.samples
            tokens += totals.completion_tokens
            prompt_tokens += totals.prompt_tokens
            rejected += totals.rejected
            counts = (totals.samples, totals.completion_tokens, totals.prompt_tokens, totals.rejected, runner.retries)
            samples.append(self._driver_sample(name, now, runner.in_flight, None, counts))
        counts = (finished, tokens, prompt_tokens, rejected, slots.tally.retried)
        samples.append(self._driver_sample(ALL, now, slots.in_flight(), slots.concurrency, counts))
        return samples

    def _driver_sample(
        self, key: str, now: float, in_flight: int, concurrency: int | None, counts: tuple[int, int, int, int, int]
    ) -> DriverSample:
        finished, tokens, prompt_tokens, rejected, retried = counts
        answered = finished - rejected
        self._quick[key].add(now, finished, tokens)
        self._recent[key].add(now, tokens, answered)
        rates = self._quick[key].rates()
        recent = self._recent[key].differences()
        return DriverSample(
            key=key,
            at=now,
            concurrency=concurrency,
            in_flight=in_flight,
            req_per_s=rates[0] if rates else None,
            useful_tokens_per_s=rates[1] if rates else None,
            mean_completion_tokens_recent=recent[1][0] / recent[1][1] if recent and recent[1][1] > 0 else None,
            mean_completion_tokens=tokens / answered if answered else None,
            finished_total=finished,
            rejected_total=rejected,
            retried_total=retried,
            completion_tokens_total=tokens,
            prompt_tokens_total=prompt_tokens,
        )

    def close(self) -> None:
        """Frees the port of the metrics and the GPU library."""
        self._exporter.close()
        if self._gpus is not None:
            self._gpus.close()

    def _offer_metrics(self) -> None:
        if self._prometheus_port is None:
            return
        try:
            port = self._exporter.start(self._prometheus_port)
        except ExporterError as error:
            self._emit(Event(time.time(), "telemetry.not_offered", "run", str(error), Severity.WARNING))
        else:
            self.prometheus_url = f"http://{ADDRESS}:{port}/metrics"

    def _publish(self, samples: Sequence[Sample]) -> None:
        if self.prometheus_url is None:
            return
        drivers = {sample.key: sample for sample in samples if isinstance(sample, DriverSample)}
        figures = RunFigures(
            run=self._name,
            at=time.time(),
            concurrency=self._slots.concurrency,
            datasets=tuple(self._dataset_figures(name, drivers[name]) for name in self._slots.runners),
            engines=tuple(EngineFigures(replica=k.name, state=k.state, sample=k.sample) for k in self._keepers),
            gpus=tuple(sample for sample in samples if isinstance(sample, GpuSample)),
        )
        self._exporter.publish(figures)

    def _dataset_figures(self, name: str, driver: DriverSample) -> DatasetFigures:
        runner, totals = self._slots.runners[name], self._slots.ledger.totals(name)
        completed = totals.samples - totals.rejected - totals.truncated
        return DatasetFigures(
            name=name,
            state=runner.state,
            useful_tokens=totals.completion_tokens,
            samples={"completed": completed, "truncated": totals.truncated, "rejected": totals.rejected},
            in_flight=runner.in_flight,
            retries=runner.retries,
            budget_tokens=runner.admission.limits.token_budget,
            tokens_per_s=driver.useful_tokens_per_s,
        )


_WITH_SAMPLES: Final = frozenset({EngineState.READY, EngineState.STALLED})
