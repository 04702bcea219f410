"""A whole run that goes to an API and back: real supervisor, real server, a paid API in a process of its own."""

from __future__ import annotations

import json
import time
import urllib.request
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from backend.probes import read_probes
from backend.records import ApiState, DatasetState, RunPhase
from backend.run_dir import open_ledger
from backend.simulator.launch import SimulatorProcess, run_simulator
from tests.runs.live_run import LiveRun, make_run, write_prompts

KEY = "sk-test-0123456789abcdef"
PRICES = {"input_usd_per_mtok": 0.5, "output_usd_per_mtok": 2.0}
# Of an engine that makes nothing while it is asked to: what the run needs then comes from the API.
NEVER_READY = ("--fault", "hang-at-start")


@pytest.fixture
def api(tmp_path: Path) -> Iterator[SimulatorProcess]:
    flags = ("--profile", "api", "--speed", "20", "--mean", "150", "--chunk-tokens", "25", "--prices", "0.5,2.0", "--api-key", KEY)
    with run_simulator(*flags, "--no-children", "--served-model-name", "sim/model", directory=tmp_path, name="api") as server:
        yield server


@pytest.fixture
def make(tmp_path: Path, api: SimulatorProcess) -> Iterator[Callable[..., LiveRun]]:
    made: list[LiveRun] = []

    def make_it(datasets: list[dict[str, Any]], *, cap_usd: float | None = None, **settings: Any) -> LiveRun:
        key = tmp_path / "key"
        key.write_text(KEY)
        own = {"base_url": f"{api.url}/v1", "model": "sim/model", "api_key_file": str(key), **PRICES}
        own |= {} if cap_usd is None else {"spend_cap_usd": cap_usd}
        run = make_run(tmp_path, datasets, api={"sim": own}, **settings)
        made.append(run)
        return run

    yield make_it
    for run in made:
        run.cleanup()


def ask(api: SimulatorProcess, path: str, body: Any = None) -> Any:
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(api.url + path, data, {"Authorization": f"Bearer {KEY}"})
    with urllib.request.urlopen(request, timeout=10) as response:
        return json.loads(response.read())


def booked_usd(run: LiveRun) -> float:
    with closing(open_ledger(run.run, read_only=True)) as con:
        (failed,) = con.execute("SELECT total(cost_usd) FROM billed_attempts").fetchone()
    return sum(row.cost_usd or 0.0 for row in run.rows()) + float(failed)


def everything_written(run: LiveRun) -> bytes:
    return b"".join(path.read_bytes() for path in run.run.root.rglob("*") if path.is_file())


def test_a_run_is_probed_switched_and_switched_back_and_the_bill_is_right(
    tmp_path: Path, api: SimulatorProcess, make: Callable[..., LiveRun]
) -> None:
    ids = {name: write_prompts(tmp_path / f"{name}.jsonl", 100) for name in ("one", "two")}
    run = make([{"name": name, "path": f"{name}.jsonl"} for name in ids], args=["--mean", "400", "--speed", "10"])
    run.start()
    run.wait(lambda s: s.replicas[0].in_flight > 0 and s.datasets[0].finished_samples > 40)
    run.probe("sim", 16, 0.5)
    deadline = time.monotonic() + 60
    while "sim" not in read_probes(run.run):
        assert time.monotonic() < deadline, run.story()
        time.sleep(0.1)
    probe = read_probes(run.run)["sim"]
    assert probe.answered == 16
    assert probe.cost_usd == pytest.approx(probe.cost_by_prices_usd)
    assert probe.lengths_p_value is not None  # the engine's answers are made to be longer
    assert probe.lengths_p_value < 0.05
    for name in ids:
        run.route(name, "sim")
    assert "Answers differ in length more than chance explains" in run.words("api.probed")
    run.wait(lambda s: s.apis[0].in_flight > 0 and s.apis[0].state is ApiState.OPEN)
    run.wait(lambda s: s.replicas[0].in_flight == 0, what="requests at the engine finish there")
    run.route("two", "both:sim")
    run.route("one", "local")
    status = run.wait_left()
    assert status.phase is RunPhase.FINISHED
    run.check_exact(ids)
    sources = Counter(row.source for row in run.rows())
    assert sources["sim"] > 20
    assert sources["local"] > 20
    bill = ask(api, "/simulator/bill")
    assert booked_usd(run) == pytest.approx(bill["usd"], abs=1e-9)
    assert status.apis[0].spent_usd == pytest.approx(bill["usd"], abs=1e-9)
    assert KEY.encode() not in everything_written(run)


@pytest.mark.drill
def test_an_engine_that_is_never_ready_keeps_no_api_from_working_and_a_killed_supervisor_no_bill_from_being_kept(
    tmp_path: Path, api: SimulatorProcess, make: Callable[..., LiveRun]
) -> None:
    """The cap holds over the lives of the supervisor; what was in flight when it was killed counts at its worst."""
    ids = write_prompts(tmp_path / "one.jsonl", 400)
    run = make([{"name": "one", "path": "one.jsonl"}], args=NEVER_READY, cap_usd=0.1)
    run.start()
    run.route("one", "sim")
    run.wait_dataset("one", lambda d: d.finished_samples > 40 and d.state is DatasetState.RUNNING)
    run.kill_supervisor()
    run.start()
    run.wait(lambda s: s.apis and s.apis[0].state is ApiState.CAPPED, what="at the cap")
    view = run.api()
    assert view.reason is not None
    assert "its cap of $0.1 is reached" in view.reason
    assert view.spent_usd is not None
    assert view.unsure_usd > 0  # of the requests that the killed supervisor had in flight
    assert ask(api, "/simulator/bill")["usd"] <= view.spent_usd + view.unsure_usd <= 0.1
    assert "sim gets no requests: its cap" in run.words("api.paused")
    run.set("api.sim.spend_cap_usd", "5")
    run.wait_dataset("one", lambda d: d.finished_samples == 400)
    run.wait_left()
    run.check_exact({"one": ids})
    assert booked_usd(run) <= ask(api, "/simulator/bill")["usd"]  # what was lost with the kill is on the bill alone
    assert "engine idles" in run.words("engine.idle")


@pytest.mark.drill
def test_the_bill_is_right_through_every_fault(tmp_path: Path, api: SimulatorProcess, make: Callable[..., LiveRun]) -> None:
    faults = {
        "http-429": 0.05, "retry-in-words": None, "http-500": 0.05, "http-402": 0.01, "disconnect": 0.02, "cut-stream": 0.03,
        "stream-error": 0.03, "flagged-403": 0.03,
    }  # fmt: skip
    ask(api, "/simulator/faults", faults)
    ids = write_prompts(tmp_path / "one.jsonl", 300)
    run = make([{"name": "one", "path": "one.jsonl"}], args=NEVER_READY)
    run.start()
    run.route("one", "sim")
    run.wait_dataset("one", lambda d: d.finished_samples > 150, 90)
    ask(api, "/simulator/faults", dict.fromkeys(faults, False))
    run.route("one", "both:sim")  # asking again tries a refused balance at once
    status = run.wait_left()
    run.check_exact({"one": ids})
    with closing(open_ledger(run.run, read_only=True)) as con:
        bills = [dict(row) for row in con.execute("SELECT outcome, cost_usd, completion_tokens FROM billed_attempts")]
    assert sum(bill["cost_usd"] or 0 for bill in bills) > 0
    told = [bill for bill in bills if bill["outcome"] == "failed"]
    assert told
    bill = ask(api, "/simulator/bill")
    assert status.apis[0].spent_usd == pytest.approx(booked_usd(run), abs=1e-9)
    # a connection that broke before the first byte has no id to ask a bill by; this API bills none of those
    assert booked_usd(run) == pytest.approx(bill["usd"], abs=1e-9)
