"""Conditions in the words that a user reads."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from backend.config import EngineConfig
from backend.job.conditions import conditions
from backend.job.courier import Tally
from backend.job.dataset_runner import DatasetRunner
from backend.job.ledger import Ledger
from backend.telemetry import EngineSample
from tests.job.made_job import make_config, make_run_dir, make_runners

OWN = EngineConfig.model_validate({"kind": "simulated"})
FOREIGN = EngineConfig.model_validate({"kind": "attached", "urls": ["http://x:1"], "api_key_env": "THEIR_KEY"})


@dataclass
class FakeKeeper:
    """What conditions ask of a replica's keeper."""

    name: str = "0"
    in_flight: int = 0
    sample: EngineSample | None = None
    throughput_problem: str | None = None


@pytest.fixture
async def runner(tmp_path: Path) -> AsyncIterator[DatasetRunner]:
    ledger = Ledger.open(make_run_dir(tmp_path))
    yield make_runners(make_config(tmp_path, {"A": ["a", b"{torn", b"[]"]}), ledger)["A"]
    await ledger.close()


def problems(
    *runners: DatasetRunner, engine: EngineConfig = OWN, keeper: FakeKeeper | None = None, now: float = 100.0, **tally: Any
) -> dict[str, str]:
    keepers: Any = [keeper] if keeper else []
    found = conditions(now, engine, disk_problem=None, tally=Tally(**tally), keepers=keepers, runners=runners)
    return {one.kind: one.problem for one in found if one.problem is not None}


def test_nothing_is_said_while_nothing_is_wrong(runner: DatasetRunner) -> None:
    sample = EngineSample(key="0", at=1.0, max_running_requests=64.0)
    assert problems(runner, keeper=FakeKeeper(in_flight=64, sample=sample)) == {}
    assert problems(runner, keeper=FakeKeeper(in_flight=64, sample=None)) == {}
    assert problems(runner, keeper=FakeKeeper(in_flight=64, sample=EngineSample(key="0", at=1.0))) == {}


def test_more_in_flight_than_the_engine_runs_is_told_with_both_remedies() -> None:
    sample = EngineSample(key="0", at=1.0, max_running_requests=48.0)
    words = problems(keeper=FakeKeeper(in_flight=150, sample=sample))["engine.capped"]
    assert "Replica 0 runs at most 48 requests at once, and 150 are in flight" in words
    assert "--max-running-requests 150" in words
    assert "lower the concurrency to 48 per replica" in words


def test_a_slow_replica_is_named() -> None:
    words = problems(keeper=FakeKeeper(name="3", throughput_problem="Throughput has fallen."))["engine.slow"]
    assert words == "Replica 3: Throughput has fallen."


def test_a_refused_key_names_the_variable_that_holds_it() -> None:
    words = problems(engine=FOREIGN, denied="HTTP 401: Unauthorized")["engine.denied"]
    assert "HTTP 401: Unauthorized" in words
    assert "none is booked as rejected" in words
    assert "Correct the key in THEIR_KEY or engine.urls." in words


def test_our_own_engine_that_refuses_us_points_to_its_log() -> None:
    assert "its log" in problems(denied="HTTP 404: Not Found")["engine.denied"]


def test_retries_are_told_for_a_minute(runner: DatasetRunner) -> None:
    runner.note_retry("HTTP 503: busy", now=100.0)
    words = problems(runner, now=159.0)["dataset.retrying"]
    assert words == "A: requests fail and are sent again; the last one: HTTP 503: busy"
    assert problems(runner, now=160.0) == {}


async def test_lines_without_a_prompt_are_told_with_the_first(runner: DatasetRunner) -> None:
    await runner.read_ahead(10)
    words = problems(runner)["dataset.bad_lines"]
    assert "lines without a prompt are passed over; the first: " in words
    assert "A.jsonl:2: " in words
