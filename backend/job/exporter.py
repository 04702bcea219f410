"""Headway's own Prometheus endpoint: the run's figures as `headway_*` metrics on 127.0.0.1.

The supervisor publishes one set of figures a second; a scrape reads the newest. Nothing is counted here: totals are the
ledger's, so they survive restarts of the supervisor. The metrics are made from the figures on each scrape, in a registry
of our own, and hold no values of prometheus-client: a PROMETHEUS_MULTIPROC_DIR in the environment changes nothing here
(a server started with it would keep its counters over restarts, which is why `server.py` removes it for its child).
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any
from wsgiref.simple_server import WSGIServer

from prometheus_client import CollectorRegistry, start_http_server
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from backend.records import DatasetState, EngineState
from backend.telemetry import EngineSample, GpuSample

ADDRESS = "127.0.0.1"


class ExporterError(Exception):
    """The endpoint cannot be opened; the message is a sentence."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DatasetFigures:
    """One dataset, as accounted so far."""

    name: str
    state: DatasetState
    useful_tokens: int  # completion tokens that count towards the budget
    samples: Mapping[str, int]  # finished, by outcome
    in_flight: int  # requests
    retries: int = 0
    budget_tokens: int | None = None
    tokens_per_s: float | None = None  # useful ones


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineFigures:
    """One replica."""

    replica: str
    state: EngineState
    sample: EngineSample | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RunFigures:
    """Everything that a scrape shows."""

    run: str
    at: float  # epoch seconds
    concurrency: int
    datasets: tuple[DatasetFigures, ...] = ()
    engines: tuple[EngineFigures, ...] = ()
    gpus: tuple[GpuSample, ...] = ()


class Exporter:
    """The endpoint. `publish` is cheap; what it was given last is what a scrape gets."""

    def __init__(self) -> None:
        self._figures = _Figures()
        self._registry = CollectorRegistry()
        self._registry.register(self._figures)
        self._serving: tuple[WSGIServer, threading.Thread] | None = None

    def start(self, port: int = 0) -> int:
        """Serves /metrics on 127.0.0.1 and returns the port (0: a free one is taken). Raises ExporterError."""
        try:
            server, thread = start_http_server(port, ADDRESS, self._registry)
        except OSError as error:
            raise ExporterError(
                f"Headway's metrics cannot be served on {ADDRESS}:{port}: {error.strerror or error}. Choose another port."
            ) from error
        self._serving = server, thread
        return int(server.server_port)

    def publish(self, figures: RunFigures) -> None:
        """Shows `figures` from now on."""
        self._figures.newest = figures

    def close(self) -> None:
        """Stops serving and frees the port; harmless when it does not serve."""
        if self._serving is not None:
            server, thread = self._serving
            self._serving = None
            server.shutdown()
            server.server_close()
            thread.join()


class _Figures(Collector):
    def __init__(self) -> None:
        self.newest: RunFigures | None = None

    def collect(self) -> Iterator[Metric]:
        figures = self.newest
        if figures is not None:
            yield from _run_metrics(figures)
            yield from _dataset_metrics(figures.datasets)
            yield from _engine_metrics(figures.engines)
            yield from _gpu_metrics(figures.gpus)


def _run_metrics(figures: RunFigures) -> Iterator[Metric]:
    yield _gauge("headway_run_info", "The run that this endpoint belongs to; always 1.", [({"run": figures.run}, 1)])
    yield _gauge(
        "headway_heartbeat_timestamp_seconds",
        "When the supervisor last published these figures, in seconds since the epoch.",
        [({}, figures.at)],
    )
    yield _gauge("headway_concurrency", "Requests allowed in flight.", [({}, figures.concurrency)])


def _dataset_metrics(datasets: tuple[DatasetFigures, ...]) -> Iterator[Metric]:
    yield _counter(
        "headway_useful_tokens_total",
        "Completion tokens of finished samples that count towards the budget.",
        [({"dataset": d.name}, d.useful_tokens) for d in datasets],
    )
    yield _counter(
        "headway_samples_total",
        "Samples finished, by outcome.",
        [({"dataset": d.name, "outcome": o}, n) for d in datasets for o, n in d.samples.items()],
    )
    yield _counter(
        "headway_retries_total",
        "Requests sent again after a failure that may pass.",
        [({"dataset": d.name}, d.retries) for d in datasets],
    )
    yield _gauge("headway_in_flight", "Requests in flight.", [({"dataset": d.name}, d.in_flight) for d in datasets])
    yield _gauge(
        "headway_budget_tokens",
        "Token budget; absent for a dataset without one.",
        [({"dataset": d.name}, d.budget_tokens) for d in datasets],
    )
    yield _gauge(
        "headway_tokens_per_second",
        "Useful completion tokens per second.",
        [({"dataset": d.name}, d.tokens_per_s) for d in datasets],
    )
    yield _gauge(
        "headway_dataset_state",
        "1 for the state that a dataset is in, 0 for the others.",
        [({"dataset": d.name, "state": s.value}, int(s is d.state)) for d in datasets for s in DatasetState],
    )


def _engine_metrics(engines: tuple[EngineFigures, ...]) -> Iterator[Metric]:
    yield _gauge(
        "headway_engine_state",
        "1 for the state that a replica is in, 0 for the others.",
        [({"replica": e.replica, "state": s.value}, int(s is e.state)) for e in engines for s in EngineState],
    )
    for name, words, attribute in (
        ("running_requests", "Requests that the engine runs.", "running"),
        ("queued_requests", "Requests that wait in the engine.", "queued"),
        ("decode_tokens_per_second", "Tokens generated per second, by live counters.", "decode_tokens_per_s"),
        ("prefill_tokens_per_second", "Prompt tokens computed per second.", "prefill_tokens_per_s"),
        ("kv_usage_ratio", "Share of the KV pool in use, 0 to 1.", "token_usage"),
        ("heartbeat_age_seconds", "Time since the engine's scheduler last spoke.", "heartbeat_age_s"),
    ):
        yield _gauge(f"headway_engine_{name}", words, [({"replica": e.replica}, _of(e, attribute)) for e in engines])
    yield _counter(
        "headway_engine_retracted_requests_total",
        "Requests put back for want of KV memory, in the server's present life.",
        [({"replica": e.replica}, _of(e, "retracted_total")) for e in engines],
    )


def _gpu_metrics(gpus: tuple[GpuSample, ...]) -> Iterator[Metric]:
    def labels(gpu: GpuSample) -> dict[str, str]:
        return {"gpu": "" if gpu.index is None else f"{gpu.index:.0f}", "uuid": gpu.key}

    for name, words, attribute, divisor in (
        ("utilization_ratio", "Share of time in which a kernel ran, 0 to 1.", "utilization_percent", 100),
        ("memory_used_bytes", "Memory in use.", "memory_used_bytes", 1),
        ("power_watts", "Power drawn.", "power_w", 1),
        ("temperature_celsius", "Temperature.", "temperature_c", 1),
        ("throttled", "1 while heat or power holds the clocks down.", "throttled", 1),
    ):
        values = [(labels(gpu), _divided(getattr(gpu, attribute), divisor)) for gpu in gpus]
        yield _gauge(f"headway_gpu_{name}", words, values)
    yield _counter(
        "headway_gpu_energy_joules_total",
        "Energy used since the driver was loaded.",
        [(labels(gpu), gpu.energy_j) for gpu in gpus],
    )


Values = list[tuple[dict[str, str], float | None]]


def _gauge(name: str, words: str, values: Values) -> Metric:
    return _filled(GaugeMetricFamily, name, words, values)


def _counter(name: str, words: str, values: Values) -> Metric:
    return _filled(CounterMetricFamily, name, words, values)


def _filled(family: type[GaugeMetricFamily] | type[CounterMetricFamily], name: str, words: str, values: Values) -> Metric:
    """A metric with a sample for each value that is known: what is missing is absent, never 0."""
    metric = family(name, words, labels=list(values[0][0]) if values else [])
    for labels, value in values:
        if value is not None:
            metric.add_metric(list(labels.values()), value)
    return metric


def _of(engine: EngineFigures, attribute: str) -> Any:
    return None if engine.sample is None else getattr(engine.sample, attribute)


def _divided(value: float | None, divisor: float) -> float | None:
    return None if value is None else value / divisor
