"""Headway's own metrics: names, units and labels exact, what is missing absent, the port free again."""

from __future__ import annotations

import os
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from backend.job.exporter import DatasetFigures, EngineFigures, Exporter, ExporterError, RunFigures
from backend.records import DatasetState, EngineState
from backend.telemetry import EngineSample, GpuSample

FIGURES = RunFigures(
    run="may",
    at=1_800_000_000.25,
    concurrency=150,
    datasets=(
        DatasetFigures(
            name="B1",
            state=DatasetState.RUNNING,
            useful_tokens=1_234_567,
            samples={"ok": 600, "truncated": 17},
            in_flight=148,
            retries=3,
            budget_tokens=10_000_000,
            tokens_per_s=409.5,
        ),
        DatasetFigures(name='B "2"', state=DatasetState.WAITING, useful_tokens=0, samples={}, in_flight=0),
    ),
    engines=(
        EngineFigures(
            replica="0",
            state=EngineState.READY,
            sample=EngineSample(key="0", at=0, running=30, queued=2, decode_tokens_per_s=408.0, retracted_total=5),
        ),
        EngineFigures(replica="1", state=EngineState.STARTING),
    ),
    gpus=(GpuSample(key="GPU-a", at=0, index=0, utilization_percent=83, power_w=612.5, energy_j=99.5),),
)

Labels = dict[str, str]


@pytest.fixture
def exporter() -> Iterator[Exporter]:
    made = Exporter()
    yield made
    made.close()


@pytest.fixture(scope="module")
def page() -> str:
    """What a scrape of `FIGURES` gives."""
    made = Exporter()
    port = made.start()
    made.publish(FIGURES)
    text = scrape(port)
    made.close()
    return text


def scrape(port: int) -> str:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as answer:
        return str(answer.read().decode())


def samples(text: str) -> dict[str, list[tuple[Labels, float]]]:
    found: dict[str, list[tuple[Labels, float]]] = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            found.setdefault(sample.name, []).append((sample.labels, sample.value))
    return found


def test_every_figure_has_its_exact_name_and_labels(page: str) -> None:
    found = samples(page)
    second = {"dataset": 'B "2"'}
    assert found["headway_run_info"] == [({"run": "may"}, 1.0)]
    assert found["headway_heartbeat_timestamp_seconds"] == [({}, 1_800_000_000.25)]
    assert found["headway_concurrency"] == [({}, 150.0)]
    assert found["headway_useful_tokens_total"] == [({"dataset": "B1"}, 1_234_567.0), (second, 0.0)]
    assert found["headway_samples_total"] == [
        ({"dataset": "B1", "outcome": "ok"}, 600.0),
        ({"dataset": "B1", "outcome": "truncated"}, 17.0),
    ]
    assert found["headway_retries_total"] == [({"dataset": "B1"}, 3.0), (second, 0.0)]
    assert found["headway_in_flight"] == [({"dataset": "B1"}, 148.0), (second, 0.0)]
    assert found["headway_budget_tokens"] == [({"dataset": "B1"}, 10_000_000.0)]
    assert found["headway_tokens_per_second"] == [({"dataset": "B1"}, 409.5)]
    assert found["headway_engine_running_requests"] == [({"replica": "0"}, 30.0)]
    assert found["headway_engine_queued_requests"] == [({"replica": "0"}, 2.0)]
    assert found["headway_engine_decode_tokens_per_second"] == [({"replica": "0"}, 408.0)]
    assert found["headway_engine_retracted_requests_total"] == [({"replica": "0"}, 5.0)]
    gpu = {"gpu": "0", "uuid": "GPU-a"}
    assert found["headway_gpu_utilization_ratio"] == [(gpu, 0.83)]
    assert found["headway_gpu_power_watts"] == [(gpu, 612.5)]
    assert found["headway_gpu_energy_joules_total"] == [(gpu, 99.5)]


def test_a_state_is_one_and_the_others_are_zero(page: str) -> None:
    found = samples(page)
    engine = {(labels["replica"], labels["state"]): value for labels, value in found["headway_engine_state"]}
    assert len(engine) == 2 * len(EngineState)
    assert [key for key, value in engine.items() if value] == [("0", "ready"), ("1", "starting")]
    dataset = {(labels["dataset"], labels["state"]) for labels, value in found["headway_dataset_state"] if value}
    assert dataset == {("B1", "running"), ('B "2"', "waiting")}


def test_what_is_missing_is_absent_and_not_zero(page: str) -> None:
    found = samples(page)
    for name in ("headway_engine_kv_usage_ratio", "headway_gpu_memory_used_bytes", "headway_gpu_temperature_celsius"):
        assert name not in found


def test_every_metric_is_described_and_only_ours_are_there(page: str) -> None:
    families = list(text_string_to_metric_families(page))
    assert len(families) > 15
    for family in families:
        assert family.name.startswith("headway_")
        assert family.documentation.endswith(".")


def test_a_scrape_shows_what_was_published_last(exporter: Exporter) -> None:
    port = exporter.start()
    assert scrape(port) == ""
    exporter.publish(FIGURES)
    exporter.publish(RunFigures(run="may", at=7.0, concurrency=8))
    found = samples(scrape(port))
    assert found["headway_concurrency"] == [({}, 8.0)]
    assert "headway_in_flight" not in found


def test_a_port_in_use_is_a_sentence_and_a_closed_one_is_free_again(exporter: Exporter) -> None:
    port = exporter.start()
    other = Exporter()
    with pytest.raises(ExporterError, match=rf"cannot be served on 127\.0\.0\.1:{port}: .*Choose another port"):
        other.start(port)
    exporter.close()
    exporter.close()
    assert other.start(port) == port
    other.close()


def test_an_inherited_multiprocess_folder_changes_nothing(tmp_path: Path) -> None:
    code = (
        "from tests.job.test_exporter import FIGURES, Exporter, scrape\n"
        "exporter = Exporter()\nport = exporter.start()\nexporter.publish(FIGURES)\n"
        "print('headway_useful_tokens_total{dataset=\"B1\"} 1.234567e+06' in scrape(port))\nexporter.close()\n"
    )
    root = Path(__file__).resolve().parents[2]
    environ = {**os.environ, "PROMETHEUS_MULTIPROC_DIR": str(tmp_path), "PYTHONPATH": str(root)}
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=root, env=environ, capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stdout == "True\n"
    assert list(tmp_path.iterdir()) == []
