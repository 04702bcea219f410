"""One replica's states: how a life begins, is judged while it goes on, ends, and what is said of it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import Any

import aiohttp
import pytest

from backend.job.reconcile import RestartPolicy
from backend.job.replica import AdoptOutcome, AdoptResult, Endpoint, ReplicaObservation, ReplicaPhase, StartRefused, StopReport
from backend.job.replica_keeper import ReplicaKeeper
from backend.records import EngineState, Event, Severity
from backend.telemetry import EngineSample

POLICY = RestartPolicy(backoff_s=2.0, backoff_max_s=60.0, max_restarts=8, window_s=3600.0)


class FakeReplica:
    """A server that is as a test says."""

    def __init__(self) -> None:
        self.name = "0"
        self.phase = ReplicaPhase.ABSENT
        self.launch_id = "first"
        self.reason: str | None = None
        self.refusal: str | None = None
        self.pid: int | None = 7
        self.stops: list[float] = []
        self.report = StopReport(clean=True, message="replica 0: ended when asked; nothing of it is left")

    def adopt(self) -> AdoptResult:
        return AdoptResult(AdoptOutcome.NOTHING)

    def launch(self, now: float) -> None:
        if self.refusal is not None:
            raise StartRefused(self.refusal)
        self.phase = ReplicaPhase.LOADING

    async def observe(self, session: aiohttp.ClientSession, now: float) -> ReplicaObservation:
        ready = self.phase is ReplicaPhase.READY
        endpoint = Endpoint("0", "http://127.0.0.1:9", None, self.launch_id, owned=True) if ready else None
        return ReplicaObservation("0", self.phase, now, endpoint, self.pid, reason=self.reason, version="0.5.23")

    async def stop(self, *, deadline_s: float) -> StopReport:
        self.stops.append(deadline_s)
        self.phase = ReplicaPhase.ABSENT
        return self.report

    async def abort(self, session: aiohttp.ClientSession, rids: Sequence[str] | None) -> None:
        raise AssertionError("nobody aborts here")


class Bench:
    """A keeper over a fake replica, on a clock of its own."""

    def __init__(self, session: aiohttp.ClientSession, *, owned: bool = True) -> None:
        self.replica = FakeReplica()
        self.now = 1000.0
        self.in_flight, self.answered = 0, 0
        self.sample: dict[str, Any] = {}
        self.events: list[Event] = []
        self.keeper = ReplicaKeeper(
            self.replica,
            session,
            owned=owned,
            stall_after_s=10.0,
            stop_deadline_s=5.0,
            in_flight_and_answered=lambda: (self.in_flight, self.answered),
            emit=self.events.append,
            now=lambda: self.now,
        )

    def told(self) -> list[tuple[str, str]]:
        return [(event.kind, event.message) for event in self.events]

    async def pass_seconds(self, seconds: int) -> None:
        for _ in range(seconds):
            self.now += 1
            await self.keeper.observe()

    async def make_ready(self) -> None:
        self.keeper.launch()
        self.replica.phase = ReplicaPhase.READY
        await self.pass_seconds(1)
        assert self.keeper.state is EngineState.READY


MakeBench = Callable[..., Awaitable[Bench]]


@pytest.fixture
async def make_bench(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[MakeBench]:
    async with aiohttp.ClientSession() as session:

        async def make(*, owned: bool = True) -> Bench:
            bench = Bench(session, owned=owned)

            async def probe(_: Any, now: float) -> EngineSample:
                return EngineSample(key="0", at=now, **bench.sample)

            monkeypatch.setattr("backend.job.engine_probe.EngineProbe.probe", probe)
            return bench

        yield make


async def settle(bench: Bench, state: EngineState) -> None:
    deadline = time.monotonic() + 5
    while bench.keeper.state is not state:
        assert time.monotonic() < deadline, bench.keeper.state
        await asyncio.sleep(0)


async def test_a_life_begins_with_starting_and_is_ready_with_an_endpoint(make_bench: MakeBench) -> None:
    bench = await make_bench()
    assert (bench.keeper.state, bench.keeper.endpoint) == (EngineState.STOPPED, None)
    bench.keeper.launch()
    await bench.pass_seconds(3)
    assert (bench.keeper.state, bench.keeper.endpoint) == (EngineState.STARTING, None)
    bench.replica.phase = ReplicaPhase.READY
    await bench.pass_seconds(2)
    assert bench.keeper.endpoint is not None
    assert bench.told() == [("engine.ready", "Replica 0 is ready at http://127.0.0.1:9, SGLang 0.5.23.")]
    status = bench.keeper.status()
    assert (status.state, status.pid, status.version, status.launch, status.restarts) == (
        EngineState.READY, 7, "0.5.23", "first", 0,
    )  # fmt: skip


async def test_a_start_that_is_refused_is_a_failed_start_with_its_words(make_bench: MakeBench) -> None:
    bench = await make_bench()
    bench.replica.refusal = "port 5 is held by pid 9."
    bench.keeper.launch()
    assert bench.told() == [("engine.start_failed", "Replica 0: not started: port 5 is held by pid 9.")]
    assert bench.keeper.observed().failed_starts == 1
    bench.keeper.launch()
    assert bench.keeper.observed().failed_starts == 2


async def test_a_life_that_ends_is_cleared_told_and_waits_for_the_next(make_bench: MakeBench) -> None:
    bench = await make_bench()
    await bench.make_ready()
    bench.replica.phase, bench.replica.reason, bench.replica.pid = ReplicaPhase.EXITED, "The server ended: killed.", None
    await bench.pass_seconds(1)
    assert bench.replica.stops == [0]
    assert bench.told()[-1] == ("engine.ended", "Replica 0: The server ended: killed.")
    assert bench.keeper.observed().ended_at == bench.now
    assert (bench.keeper.endpoint, bench.keeper.sample) == (None, None)
    bench.keeper.await_restart(POLICY)
    status = bench.keeper.status()
    assert (status.state, status.restarts, status.pid) == (EngineState.RESTARTING, 1, None)
    assert status.reason == "The server ended: killed; the next start in 2 s"


async def test_what_is_left_of_a_life_is_told_with_its_end(make_bench: MakeBench) -> None:
    bench = await make_bench()
    await bench.make_ready()
    bench.replica.phase, bench.replica.reason = ReplicaPhase.EXITED, "The server ended."
    bench.replica.report = StopReport(clean=False, message="port 5 is still held by pid 9")
    await bench.pass_seconds(1)
    assert bench.told()[-1] == ("engine.ended", "Replica 0: The server ended. port 5 is still held by pid 9")


async def test_failed_starts_in_a_row_are_forgotten_once_it_was_ready(make_bench: MakeBench) -> None:
    bench = await make_bench()
    bench.keeper.launch()
    bench.replica.phase = ReplicaPhase.START_FAILED
    await bench.pass_seconds(1)
    assert bench.keeper.observed().failed_starts == 1
    await bench.make_ready()
    assert bench.keeper.observed().failed_starts == 0


async def test_requests_without_a_token_are_a_stall_and_its_end_is_a_life_that_failed(make_bench: MakeBench) -> None:
    bench = await make_bench()
    bench.sample = {"generated_tokens": 5.0, "running": 3.0, "queued": 0.0}
    await bench.make_ready()
    bench.in_flight = 3
    await bench.pass_seconds(9)
    assert bench.keeper.state is EngineState.READY
    await bench.pass_seconds(3)
    assert bench.keeper.observed().stalled
    assert bench.keeper.endpoint is None
    words = "3 requests are waiting and for 10 s no token came"
    assert bench.told()[-1] == ("engine.stalled", f"Replica 0: {words}.")
    assert bench.keeper.status().reason == words
    bench.keeper.stop("requests were waiting and no token came")
    bench.keeper.stop("asked twice")
    await settle(bench, EngineState.STOPPED)
    assert bench.replica.stops == [5.0]
    assert [kind for kind, _ in bench.told()[-2:]] == ["engine.stopped", "engine.ended"]
    assert bench.keeper.observed().ended_at is not None


async def test_a_stall_that_ends_by_itself_is_no_end_of_a_life(make_bench: MakeBench) -> None:
    bench = await make_bench()
    bench.sample = {"generated_tokens": 5.0, "running": 3.0}
    await bench.make_ready()
    bench.in_flight = 3
    await bench.pass_seconds(12)
    assert bench.keeper.state is EngineState.STALLED
    bench.sample["generated_tokens"] = 50.0
    await bench.pass_seconds(1)
    assert bench.keeper.state is EngineState.READY
    assert bench.keeper.observed().lives_ended == ()


async def test_requests_that_the_server_no_longer_knows_are_lost_and_no_stall(make_bench: MakeBench) -> None:
    bench = await make_bench()
    bench.sample = {"generated_tokens": 5.0, "running": 0.0, "queued": 0.0}
    await bench.make_ready()
    bench.in_flight = 3
    await bench.pass_seconds(12)
    assert bench.keeper.lost_requests
    assert bench.keeper.state is EngineState.READY


async def test_a_server_that_tells_nothing_is_judged_by_its_answers(make_bench: MakeBench) -> None:
    bench = await make_bench()
    await bench.make_ready()
    bench.in_flight = 3
    for _ in range(30):
        bench.answered += 1
        await bench.pass_seconds(1)
    assert bench.keeper.state is EngineState.READY
    await bench.pass_seconds(12)
    assert bench.keeper.state is EngineState.STALLED


async def test_throughput_that_falls_is_a_problem_of_this_life_only(make_bench: MakeBench) -> None:
    bench = await make_bench()
    bench.sample = {"decode_tokens_per_s": 400.0}
    await bench.make_ready()
    bench.in_flight = 16

    async def work(seconds: int) -> None:
        for _ in range(seconds):
            bench.answered += 1
            await bench.pass_seconds(1)

    await work(300)
    assert bench.keeper.throughput_problem is None
    bench.sample["decode_tokens_per_s"] = 28.0
    await work(125)
    assert "7% of what it was" in (bench.keeper.throughput_problem or "")
    bench.replica.launch_id = "second"
    await work(1)
    assert bench.keeper.throughput_problem is None


async def test_a_stop_that_was_asked_for_is_no_end_to_recover_from(make_bench: MakeBench) -> None:
    bench = await make_bench()
    await bench.make_ready()
    bench.keeper.stop("no longer wanted")
    assert bench.keeper.state is EngineState.STOPPING
    assert bench.keeper.endpoint is None
    await settle(bench, EngineState.STOPPED)
    assert bench.keeper.observed().ended_at is None
    assert bench.told()[-1] == ("engine.stopped", "Replica 0: ended when asked; nothing of it is left.")


async def test_a_stop_that_fails_by_an_error_of_our_own_is_told_and_lets_the_run_leave(
    make_bench: MakeBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fail(_: FakeReplica, *, deadline_s: float) -> StopReport:
        raise PermissionError("servers/0.json")

    bench = await make_bench()
    await bench.make_ready()
    monkeypatch.setattr(FakeReplica, "stop", fail)
    bench.keeper.stop("no longer wanted")
    await settle(bench, EngineState.STOPPED)
    assert bench.told()[-1] == (
        "engine.stopped",
        "Replica 0: it could not be ended (PermissionError: servers/0.json); logs/supervisor.log has it.",
    )
    assert bench.events[-1].severity is Severity.WARNING


async def test_forgiving_forgets_former_ends(make_bench: MakeBench) -> None:
    bench = await make_bench()
    bench.replica.refusal = "no"
    for _ in range(3):
        bench.keeper.launch()
    bench.keeper.give_up("3 starts failed: no")
    assert bench.told()[-1] == ("engine.failed", "Replica 0: 3 starts failed: no")
    bench.keeper.forgive()
    seen = bench.keeper.observed()
    assert (seen.state, seen.failed_starts, seen.lives_ended, seen.ended_at) == (EngineState.STOPPED, 0, (), None)


async def test_a_server_of_somebody_else_that_goes_away_is_waited_for(make_bench: MakeBench) -> None:
    bench = await make_bench(owned=False)
    await bench.make_ready()
    bench.replica.phase, bench.replica.reason = ReplicaPhase.ABSENT, "nothing answers at http://x."
    await bench.pass_seconds(1)
    assert (bench.keeper.state, bench.keeper.endpoint) == (EngineState.RESTARTING, None)
    assert bench.keeper.status().reason == "nothing answers at http://x."
    assert bench.replica.stops == []
    bench.replica.phase = ReplicaPhase.READY
    await bench.pass_seconds(1)
    assert bench.keeper.state is EngineState.READY
    assert [kind for kind, _ in bench.told()] == ["engine.ready", "engine.ready"]
