"""SIGKILL of anything at any moment, again and again: every sample exactly once, and nothing left behind.

`make drill` runs ROUNDS rounds (100 by default). All dice come from SEED, which is printed: `make drill SEED=...` throws
them again.
"""

from __future__ import annotations

import os
import random
import shutil
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from live_run import LiveRun, make_run, write_prompts
from struck_run import GESTURES, MOMENTS, VICTIMS, StruckRun

from backend.job.ports import is_free
from backend.records import DatasetState

pytestmark = [pytest.mark.drill, pytest.mark.timeout(240)]

ROUNDS = int(os.environ.get("ROUNDS") or 100)
SEED = os.environ.get("SEED") or str(time.time_ns() % 1_000_000)
LANES = 2  # rounds at a time
STRIKES = 3  # a round
PROMPTS = {"all": 160, "some": 200, "budget": 400}
SAMPLES_WANTED = 130  # of "some"
TOKEN_BUDGET = 6_000  # of "budget"
MAX_NEW_TOKENS = 120
# Every server of a round has one of these as well: kills meet servers that are ill already.
FAULTS = (
    "none",
    "none",
    "orphan-child",
    "ignore-abort",
    "ignore-disconnects",
    "disconnect=0.05",
    "abort-200=0.1",
    "http-503=0.05",
    "die-at-request=80:hold",
)


class Rounds:
    """All rounds, LANES at a time: they wait more than they work. Each test takes the result of its own."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.strikes: Counter[str] = Counter()
        self.exact = 0
        self.began_at = time.monotonic()
        self.pool = ThreadPoolExecutor(LANES)
        self.results = [self.pool.submit(self.play, number) for number in range(ROUNDS)]

    def play(self, number: int) -> None:
        """One round: three strikes, then undisturbed to the end, then the checks."""
        folder = self.folder / f"round{number}"
        folder.mkdir()
        ids = {name: write_prompts(folder / f"{name}.jsonl", count) for name, count in PROMPTS.items()}
        name = f"SEED={SEED} round {number}"
        fault = random.Random(name).choice(FAULTS)
        struck = StruckRun(make_run_of_three_datasets(folder, fault), f"{name}, fault {fault}")
        try:
            struck.start()
            for _ in range(STRIKES):
                moment, victim = struck.dice.choice((*MOMENTS, "working", "working")), struck.dice.choice(VICTIMS)
                self.strikes[f"{victim}, {moment}"] += 1
                struck.strike(moment, victim, struck.dice.choice(("none", "none", *GESTURES)))
                if struck.dice.random() < 0.5:
                    struck.resume()
            struck.finish()
            check_everything(struck, ids)
        except AssertionError as error:
            raise AssertionError(f"{error}\n{struck.story()}") from error
        finally:
            struck.kill_supervisor()
            struck.live.cleanup()
        self.exact += 1
        shutil.rmtree(folder)

    def summary(self) -> str:
        """In one line."""
        took_s = time.monotonic() - self.began_at
        strikes = Counter[str]()
        for strike, count in self.strikes.items():
            strikes.update(dict.fromkeys(strike.split(", "), count))
        told = ", ".join(f"{strike} {strikes[strike]}" for strike in (*VICTIMS, *MOMENTS))
        return f"{self.exact} of {ROUNDS} rounds exact in {took_s:.0f} s, {self.strikes.total()} strikes ({told})"


@pytest.fixture(scope="module")
def rounds(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rounds]:
    """Started together; the seed is told first, in case there is no end."""
    capture = request.config.pluginmanager.get_plugin("capturemanager")
    assert capture is not None

    def tell(words: str) -> None:
        with capture.global_and_fixture_disabled():
            print(f"\nkill drill, SEED={SEED}: {words}", flush=True)

    tell(f"{ROUNDS} rounds")
    rounds = Rounds(tmp_path_factory.mktemp("drill"))
    yield rounds
    rounds.pool.shutdown(cancel_futures=True)
    tell(rounds.summary())


@pytest.mark.parametrize("number", range(ROUNDS))
def test_whatever_is_killed_whenever_every_sample_is_made_exactly_once(number: int, rounds: Rounds) -> None:
    rounds.results[number].result()


def make_run_of_three_datasets(folder: Path, fault: str) -> LiveRun:
    """One kind of limit each, short answers, sealed all the time."""
    with_fault = [] if fault == "none" else ["--fault", fault]
    return make_run(
        folder,
        [
            {"name": "all", "path": "all.jsonl"},
            {"name": "some", "path": "some.jsonl", "max_samples": SAMPLES_WANTED},
            {"name": "budget", "path": "budget.jsonl", "token_budget": TOKEN_BUDGET},
        ],
        engine={
            "replicas": 2,
            "args": ["--load-s", "0.1", "--speed", "5", "--mean", "40", "--no-thinking", *with_fault],
            "max_restarts": 100,
            "stop_deadline_s": 3,
            "restart_backoff_s": 0.1,
            "stall_after_s": 10,
        },
        generation={"concurrency": 24, "max_new_tokens": MAX_NEW_TOKENS},
        driver={"shard_rows": 25, "shard_seconds": 0.4, "drain_limit_s": 2},
    )


def check_everything(struck: StruckRun, ids: dict[str, list[str]]) -> None:
    """Every sample once, every limit met, nothing left behind."""
    struck.live.check_exact({"all": ids["all"]})
    datasets = {dataset.name: dataset for dataset in struck.live.status().datasets}
    assert {dataset.state for dataset in datasets.values()} == {DatasetState.DONE}
    assert [row.error for row in struck.live.rows() if row.error is not None] == []
    assert datasets["some"].finished_samples == SAMPLES_WANTED
    assert {row.sample_id for row in struck.live.rows("some")} <= set(ids["some"])
    assert {row.sample_id for row in struck.live.rows("budget")} <= set(ids["budget"])
    # the few answers that are in flight when the budget is met may come out longer or shorter than expected
    assert abs(datasets["budget"].completion_tokens - TOKEN_BUDGET) <= 6 * MAX_NEW_TOKENS
    assert struck.live.processes() == []
    assert [port for port in struck.ports if not is_free(port)] == []
    assert [str(path) for path in struck.run.root.rglob("*.tmp")] == []
    assert list(struck.run.servers.iterdir()) == []  # no key of a server that is gone
