"""While a run goes on it is forecast when that is due, from what was really made, and every forecast is scored at the end."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from backend import forecasts
from backend.forecast.observation import Observation
from backend.job import forecaster as module
from backend.job.bulletin import Bulletin
from backend.job.forecaster import Forecaster
from backend.job.ledger import FinishedKey, Ledger
from backend.job.routes import Route
from backend.job.state_store import StateStore
from backend.job.wishes import Want, initial
from backend.records import DatasetState
from backend.telemetry import EngineSample
from tests.job.made_job import make_config, make_run_dir, make_runners


@dataclass
class Bench:
    """A forecaster over real accounts and a real state.sqlite; servers and time are the test's."""

    folder: Path
    clock: float = 1000.0
    tokens_per_s: float | None = 500.0
    slots: Any = field(init=False)

    def __post_init__(self) -> None:
        config = make_config(
            self.folder, {"A": [f"a{i}" for i in range(400)]}, generation={"max_new_tokens": 4000, "concurrency": 10}
        )
        self.run = make_run_dir(self.folder)
        self.ledger = Ledger.open(self.run)
        self.runners = make_runners(config, self.ledger)
        self.wishes = initial(config)
        self.store = StateStore(self.run)
        self.keepers = [self]  # it is its own server
        self.endpoint: object | None = "here"
        self.slots = SimpleNamespace(runners=self.runners)
        self.apis: dict[str, Any] = {}
        self.bulletin = Bulletin(self.run, self.store, 1)
        self.forecaster = self.new_life()

    @property
    def sample(self) -> EngineSample:
        return EngineSample(key="0", at=0.0, decode_tokens_per_s=self.tokens_per_s)

    def new_life(self) -> Forecaster:
        keepers: Any = self.keepers
        return Forecaster(
            self.run,
            slots=self.slots,
            apis=self.apis,
            keepers=keepers,
            store=self.store,
            bulletin=self.bulletin,
            wishes=self.wishes,
        )

    def observed(self) -> Observation:
        return self.forecaster.observe(self.wishes)["local"]

    def begin(self, count: int) -> None:
        runner = self.runners["A"]
        for _ in range(count):
            runner.started(runner.take())

    def finish(self, tokens: int) -> None:
        """The oldest request in flight becomes a sample."""
        runner = self.runners["A"]
        runner.admission.finished(next(iter(runner.admission._started_at)), self.clock, tokens)
        runner.lengths[tokens] += 1
        runner.started(runner.take())

    async def pass_time(self, seconds: int, finished_each_s: int = 0, tokens: int = 500) -> None:
        for _ in range(seconds):
            self.clock += 1.0
            for _ in range(finished_each_s):
                self.finish(tokens)
            self.forecaster.look(self.wishes)
            await asyncio.gather(*self.forecaster._works)


@pytest.fixture
async def bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Bench]:
    bench = Bench(tmp_path)
    monkeypatch.setattr(module.time, "monotonic", lambda: bench.clock)
    bench.runners["A"]._clock = lambda: bench.clock
    await bench.runners["A"].read_ahead(400)
    await bench.forecaster.open()
    yield bench
    bench.store.close()
    await bench.ledger.close()


async def test_before_anything_is_made_nothing_is_said_and_why(bench: Bench) -> None:
    await bench.pass_time(2)
    said = forecasts.read_newest(bench.run)
    assert said is not None
    assert said.forecast.remaining is None
    assert said.forecast.why_none is not None
    assert "no speed is known" in said.forecast.why_none
    assert not said.active


async def test_a_forecast_comes_each_quarter_minute_at_first_and_each_minute_later(bench: Bench) -> None:
    bench.begin(10)
    await bench.pass_time(300)
    early = len(bench.store._con.execute("SELECT * FROM forecasts").fetchall())
    assert 23 <= early <= 27  # nothing is finished: the first six ask again soon
    await bench.pass_time(300)
    later = len(bench.store._con.execute("SELECT * FROM forecasts").fetchall())
    assert 4 <= later - early <= 6


async def test_the_servers_rate_is_the_speed_and_the_end_follows_from_it(bench: Bench) -> None:
    bench.begin(10)
    await bench.pass_time(60, finished_each_s=1)
    said = forecasts.read_newest(bench.run)
    assert said is not None
    assert said.forecast.assumptions is not None
    assert said.forecast.assumptions.tokens_per_s.p50 == pytest.approx(500, rel=0.15)
    assert said.forecast.remaining is not None
    # 400 samples of 500 tokens at 500 tokens/s, a minute of them made: 340 s, and a little for what slows down
    assert said.forecast.remaining.p10 < 340 < said.forecast.remaining.p90
    basis = forecasts.read_basis(bench.run)
    assert basis is not None
    assert basis.observation.datasets[0].state is DatasetState.RUNNING


async def test_a_server_that_tells_no_rate_is_known_by_what_it_finished(bench: Bench) -> None:
    bench.tokens_per_s = None
    bench.begin(10)
    await bench.pass_time(120, finished_each_s=1)
    history = bench.observed().history
    assert history.tokens_per_s[3:].mean() == pytest.approx(500, rel=0.1)


async def test_the_curve_of_a_sweep_is_what_a_new_forecast_rests_on(bench: Bench) -> None:
    points = ((1.0, 62.0), (8.0, 370.0), (48.0, 409.0))
    curve: Any = SimpleNamespace(points=points)
    bench.begin(10)
    await bench.pass_time(6)
    bench.clock += 1
    bench.forecaster.look(bench.wishes, curve)
    await asyncio.gather(*bench.forecaster._works)
    said, basis = forecasts.read_newest(bench.run), forecasts.read_basis(bench.run)
    assert said is not None
    assert basis is not None
    assert said.reason == "a sweep tells how fast how many requests are"
    assert basis.observation.speed_curve == points


async def test_work_that_was_lost_was_not_made(bench: Bench) -> None:
    bench.begin(10)
    runner = bench.runners["A"]
    for _ in range(100):
        runner.admission.may_admit(bench.clock, 50.0)
        await bench.pass_time(1)
    assert bench.observed().history.tokens_per_s.sum() == pytest.approx(50 * 90, rel=0.2)
    for prompt_id in list(runner.admission._started_at):
        runner.lost_tokens += runner.admission.begins_anew(prompt_id, bench.clock)
    await bench.pass_time(20)
    assert bench.observed().history.tokens_per_s.sum() < 50 * 25


async def test_a_pause_takes_no_time_and_a_change_of_wishes_is_a_new_plan(bench: Bench) -> None:
    bench.begin(2)
    await bench.pass_time(30)
    active_s = bench.observed().active_s
    for prompt_id in list(bench.runners["A"].admission._started_at):
        bench.runners["A"].admission.given_back(prompt_id, bench.clock)
    await bench.pass_time(500)
    assert bench.observed().active_s <= active_s + 1
    bench.wishes = replace(bench.wishes, concurrency=5)
    await bench.pass_time(4)
    said = forecasts.read_newest(bench.run)
    assert said is not None
    assert (said.plan, said.reason) == (1, "what is wanted has changed")


async def test_a_run_that_is_to_stop_is_not_forecast(bench: Bench) -> None:
    bench.wishes = replace(bench.wishes, run=Want.STOPPED)
    bench.begin(2)
    await bench.pass_time(100)
    assert forecasts.read_newest(bench.run) is None


async def test_what_ends_is_scored_and_a_new_life_goes_on_counting(bench: Bench) -> None:
    bench.begin(10)
    await bench.pass_time(120, finished_each_s=1)
    bench.forecaster.dataset_done("A")
    await bench.forecaster.finish(run_is_done=True)
    assert {one.subject for one in forecasts.read_scores(bench.run)} == {"dataset:A", "run"}
    said = forecasts.read_newest(bench.run)
    assert said is not None
    bench.forecaster = bench.new_life()
    await bench.forecaster.open()
    assert bench.observed().active_s == said.active_s
    assert len(bench.forecaster._own) == 2


async def test_an_error_in_the_forecast_is_told_and_stops_nothing(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> None:
        raise ArithmeticError

    monkeypatch.setattr(module, "_reckon", broken)
    bench.begin(2)
    await bench.pass_time(20)
    words = [event.message for event in bench.bulletin._told]
    assert words == ["No forecast can be made: an error in Headway itself (ArithmeticError)."]


async def test_what_former_lives_have_made_is_no_speed_of_this_one(bench: Bench) -> None:
    bench.tokens_per_s = None
    bench.runners["A"].admission.finished_samples, bench.runners["A"].admission.finished_tokens = 100, 50_000_000
    await bench.pass_time(1)
    bench.begin(10)
    await bench.pass_time(120, finished_each_s=1)
    assert bench.observed().history.tokens_per_s.max() < 2_000


async def test_samples_made_again_take_nothing_from_the_speed_at_which_they_were_made(bench: Bench) -> None:
    bench.tokens_per_s = None
    bench.begin(10)
    await bench.pass_time(120, finished_each_s=1)
    before = bench.observed().history.tokens_per_s.sum()
    for n in range(40):
        bench.runners["A"].forget_sample(FinishedKey(f"A-{n}", 0, 1, n, 500, 10, None, "stop"))
    await bench.pass_time(20, finished_each_s=1)
    assert bench.observed().history.tokens_per_s.sum() > before


async def test_a_dataset_that_goes_to_an_api_leaves_no_debt_and_brings_no_speed(bench: Bench) -> None:
    bench.apis["far"] = SimpleNamespace(concurrency=10)
    bench.begin(10)
    await bench.pass_time(120, finished_each_s=1)
    before = bench.observed().history.tokens_per_s.sum()
    bench.wishes = replace(bench.wishes, datasets={"A": replace(bench.wishes.datasets["A"], route=Route(False, "far"))})
    await bench.pass_time(120, finished_each_s=1)
    assert bench.observed().history.tokens_per_s.sum() == before
    assert bench.forecaster.observe(bench.wishes)["far"].history.tokens_per_s.max() < 2_000


async def test_the_reason_of_a_new_plan_is_not_lost_among_what_follows_from_it(bench: Bench) -> None:
    bench.begin(2)
    await bench.pass_time(10)
    bench.forecaster.changed("1 of 1 replicas ready")
    bench.forecaster.changed("what is wanted has changed", plan=True)
    bench.forecaster.changed("A: running → paused")
    await bench.pass_time(4)
    assert forecasts.read_reasons(bench.run)[1] == "what is wanted has changed"
    bench.forecaster.changed("A: paused → running")
    await bench.pass_time(4)
    said = forecasts.read_newest(bench.run)
    assert said is not None
    assert said.reason == "A: paused → running"


async def test_what_was_wished_while_nobody_worked_is_a_new_plan_and_a_start_is_none(bench: Bench) -> None:
    bench.begin(2)
    await bench.pass_time(10)
    for concurrency, plan in ((bench.wishes.concurrency, 0), (20, 1)):
        bench.forecaster = bench.new_life()
        await bench.forecaster.open()
        bench.wishes = replace(bench.wishes, concurrency=concurrency)
        await bench.pass_time(4)
        said = forecasts.read_newest(bench.run)
        assert said is not None
        assert said.plan == plan


async def test_a_deadline_and_a_stop_change_nothing_of_what_is_to_be_done(bench: Bench) -> None:
    bench.begin(2)
    await bench.pass_time(10)
    bench.wishes = replace(bench.wishes, deadline="2026-12-03T12:00:00+01:00", run=Want.STOPPED)
    await bench.pass_time(4)
    bench.wishes = replace(bench.wishes, run=Want.RUNNING)
    await bench.pass_time(30)
    assert list(forecasts.read_reasons(bench.run)) == [0]


async def test_a_forecast_of_another_version_does_not_set_the_clock_back(bench: Bench) -> None:
    bench.begin(2)
    await bench.pass_time(30)
    active_s = bench.observed().active_s
    bench.store._con.execute("UPDATE forecasts SET forecast = '{}', plan = 3")
    bench.forecaster = bench.new_life()
    await bench.forecaster.open()
    await bench.pass_time(5)
    said = forecasts.read_newest(bench.run)
    assert said is not None
    assert said.plan == 3
    assert said.active_s == pytest.approx(active_s, abs=16)
