"""Which sweeps can begin, and what becomes of one that was asked for: with stand-ins for slots and replicas."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from backend.config import RunConfig
from backend.job import wishes
from backend.job.state_store import StateStore
from backend.job.sweep import Sweeper
from backend.job.wishes import RefusedError, Want
from backend.records import Event, Intent, IntentAction
from backend.run_dir import RunDir
from backend.sweeps import Sweep, SweepState, sweeps_of
from backend.telemetry import EngineSample

CONFIG = RunConfig.model_validate(
    {
        "name": "r",
        "model": {"path": "m"},
        "engine": {"kind": "simulated", "args": ["--max-running-requests", "40"]},
        "generation": {"concurrency": 16},
        "datasets": [{"name": "A", "path": "a"}],
    }
)


class Bench:
    """A sweeper among stand-ins: one ready replica, one dataset at work."""

    def __init__(self, store: StateStore) -> None:
        self.store = store
        self.wishes = wishes.initial(CONFIG)
        self.events: list[Event] = []
        self.slots: Any = SimpleNamespace(
            admitting=True, concurrency=16, in_flight=lambda: 16, changed=lambda: None, abort_newest=lambda keep: None,
            may_take=lambda runner: runner.here,
            tally=SimpleNamespace(first_tokens=deque()),
        )  # fmt: skip
        self.runner: Any = SimpleNamespace(here=True, open=True, fault=None, exhausted=False, in_flight=16)
        self.keeper: Any = SimpleNamespace(
            name="0", endpoint=SimpleNamespace(launch="x"), sample=EngineSample(key="0", at=1.0, answered=1, generated_tokens=5)
        )
        self.sweeper = self.new_life()

    def new_life(self) -> Sweeper:
        return Sweeper(
            CONFIG, slots=self.slots, runners={"A": self.runner}, keepers=[self.keeper], wishes=lambda: self.wishes,
            store=self.store, emit=self.events.append,
        )  # fmt: skip

    def refused(self, **value: Any) -> str:
        with pytest.raises(RefusedError) as refusal:
            self.sweeper.check(intent(**value))
        return str(refusal.value)


def intent(**value: Any) -> Intent:
    return Intent("run", IntentAction.SWEEP, value, "me", 1.0, "t")


@pytest.fixture
def folder(tmp_path: Path) -> RunDir:
    run = RunDir(tmp_path / "r")
    run.create_folders()
    return run


@pytest.fixture
async def bench(folder: RunDir) -> AsyncIterator[Bench]:
    store = StateStore(folder)
    bench = Bench(store)
    await bench.sweeper.open()
    work = asyncio.create_task(bench.sweeper.run())
    yield bench
    work.cancel()
    store.close()


async def newest(folder: RunDir, state: SweepState) -> Sweep:
    deadline = time.monotonic() + 10
    while not (found := sweeps_of(folder)) or found[0].state is not state:
        assert time.monotonic() < deadline, found
        await asyncio.sleep(0.01)
    return found[0]


async def test_what_can_be_measured_is_not_refused(bench: Bench) -> None:
    bench.sweeper.check(intent(levels=[1, 40]))
    bench.sweeper.check(intent(measured=[{"concurrency": 1, "tokens_per_s": 1.0}]))
    bench.sweeper.check(Intent("run", IntentAction.STATE, {"want": "running"}, "me", 1.0, "t"))


async def test_what_cannot_be_measured_now_is_refused_with_its_reason(bench: Bench) -> None:
    assert bench.refused(cancel=True) == "No sweep is running: there is nothing to cancel."
    assert bench.refused(levels=[1, 41]).startswith(
        "The level 41 is more than the engine runs at once (40 on all ready replicas"
    )
    bench.keeper.sample = replace(bench.keeper.sample, max_running_requests=8.0)  # what the engine says counts
    assert "more than the engine runs at once (8 on" in bench.refused(levels=[1, 9])
    bench.keeper.sample = EngineSample(key="0", at=1.0, answered=1)
    assert "does not tell how many tokens it makes" in bench.refused(levels=[1])
    bench.keeper.sample = None
    bench.runner.here = False
    assert "or sent to an API" in bench.refused(levels=[1])
    bench.runner.here, bench.runner.open = True, False
    assert bench.refused(levels=[1]).startswith("A sweep sends the run's own prompts, and no dataset runs")
    bench.keeper.endpoint = None
    assert bench.refused(levels=[1]) == "No replica of the engine is ready: a sweep measures a server at work."
    bench.slots.admitting = False
    assert bench.refused(levels=[1]) == "The run admits no requests now: it stops, or its disk is full."


async def test_a_second_sweep_is_refused_and_the_first_sets_the_slots_until_it_is_cancelled(
    bench: Bench, folder: RunDir
) -> None:
    bench.sweeper.accepted(intent(levels=[2, 4]))
    assert bench.refused(levels=[8]) == "A sweep is running already. Wait for its end, or cancel it first."
    await newest(folder, SweepState.RUNNING)
    assert bench.sweeper.concurrency(16) == bench.slots.concurrency == 2

    bench.sweeper.check(intent(cancel=True))
    bench.sweeper.accepted(intent(cancel=True))
    sweep = await newest(folder, SweepState.CANCELLED)

    assert sweep.reason == "me cancelled it"
    assert bench.sweeper.concurrency(16) == bench.slots.concurrency == 16
    assert [event.kind for event in bench.events] == ["sweep.started", "sweep.cancelled"]


async def test_a_stop_of_the_run_ends_a_sweep(bench: Bench, folder: RunDir) -> None:
    bench.sweeper.accepted(intent(levels=[2, 4]))
    await newest(folder, SweepState.RUNNING)
    bench.wishes = replace(bench.wishes, run=Want.STOPPED)

    assert (await newest(folder, SweepState.ENDED)).reason == "the run was asked to stop"


async def test_a_supervisor_that_leaves_ends_its_sweep(bench: Bench, folder: RunDir) -> None:
    bench.sweeper.accepted(intent(levels=[2, 4]))
    await newest(folder, SweepState.RUNNING)
    await bench.sweeper.close()

    assert (await newest(folder, SweepState.ENDED)).reason == "the run stopped"


async def test_a_new_life_says_that_a_sweep_was_interrupted(bench: Bench, folder: RunDir) -> None:
    bench.sweeper.accepted(intent(levels=[2, 4]))
    await newest(folder, SweepState.RUNNING)
    bench.events.clear()
    await bench.new_life().open()

    assert sweeps_of(folder)[0].state is SweepState.INTERRUPTED
    assert [event.message for event in bench.events] == [
        "The sweep was interrupted, as its supervisor ended; 0 of 2 levels are kept."
    ]


async def test_levels_of_a_file_are_the_curve_at_once_and_in_later_lives(bench: Bench, folder: RunDir) -> None:
    measured = [{"concurrency": n, "tokens_per_s": 10.0 * n} for n in (1, 4)]
    bench.sweeper.accepted(intent(measured=measured, source="bench.jsonl", replicas=1))
    sweep = await newest(folder, SweepState.FINISHED)
    later = bench.new_life()
    await later.open()

    assert (sweep.source, sweep.who, sweep.level_limit_s) == ("bench.jsonl", "me", None)
    assert later.curve is not None
    assert later.curve.points == ((1.0, 10.0), (4.0, 40.0))
