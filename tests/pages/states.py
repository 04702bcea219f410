"""Runs in every state that a page may meet."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from backend.holds import Example, GuardKind, Hold
from backend.records import DatasetState, DatasetStatus, EngineState, Facts, JobStatus, ReplicaStatus, RunPhase
from backend.run_dir import RunDir
from tests.finished_samples import add_open, sample, seal
from tests.made_forecast import two_datasets, write_forecast
from tests.made_run import beat, holding_lock, job_status, make_run, write_event, write_hold

HELD_FOR = "Of the 16 samples that were started first, 14 are bad answers: 87.5 %, where 20 % is the limit."


def _with(status: JobStatus, state: DatasetState, reason: str | None = None) -> JobStatus:
    return replace(status, datasets=tuple(replace(d, state=state, reason=reason, in_flight=0) for d in status.datasets))


def _nothing(run: RunDir) -> None:
    return None


def _past(run: RunDir, status: JobStatus) -> None:
    now = time.time()
    add_open(run, [sample(i, started_at=now - 900 + i, finished_at=now - 800 + i) for i in range(20)])
    seal(run, "alpha", 1)
    add_open(run, [sample(20, started_at=now - 30, finished_at=now - 10, finish_reason="rejected", error="HTTP 400: no")])
    write_event(run, "Supervisor started (life 1, pid 1).", now - 900)
    write_event(run, "alpha: requests are sent again.", now - 60, severity="warning")
    run.supervisor_log().write_text("started\n")
    run.server_log("0").write_text("server ready\n")
    write_forecast(run, two_datasets(), now - 30, active=status.in_flight > 0)
    beat(run, status, now)


def _starting(run: RunDir) -> None:
    replica = ReplicaStatus("0", EngineState.STARTING, reason="the model loads", since=time.time())
    beat(run, job_status(phase=RunPhase.STARTING, in_flight=0, replicas=(replica,), tokens_per_s=None), time.time())


def _failed(run: RunDir) -> None:
    replica = ReplicaStatus("0", EngineState.FAILED, reason="out of memory")
    status = job_status(phase=RunPhase.FAILED, exit_code=1, in_flight=0, replicas=(replica,))
    _past(run, _with(status, DatasetState.FAILED, "its prompt file has changed"))
    write_event(run, "The engine was given up: CUDA out of memory.", time.time(), severity="error")


def _finished(run: RunDir) -> None:
    datasets = (
        DatasetStatus("alpha", DatasetState.DONE, reason="budget", token_budget=80, prompts=5),
        DatasetStatus("beta", DatasetState.DONE, reason="samples", max_samples=3, prompts=10),
    )
    _past(run, job_status(phase=RunPhase.FINISHED, exit_code=0, in_flight=0, datasets=datasets, replicas=()))


def _held(run: RunDir) -> None:
    now = time.time()
    datasets = (
        DatasetStatus("alpha", DatasetState.HELD, reason=HELD_FOR, in_flight=2, prompts=50, token_budget=100000),
        DatasetStatus("beta", DatasetState.DONE, reason="samples", max_samples=3, prompts=10),
    )
    _past(run, job_status(datasets=datasets, in_flight=2))
    add_open(run, [sample(30 + i, answer="", raw_text="", facts=Facts(answer_tokens=0), finished_at=now - 5) for i in range(2)])
    examples = [Example(number, 0, 1, "empty", 4, now - 9, now - 5) for number in (30, 31)]
    examples.append(Example(5, 0, 1, "degenerate", 4, now - 895, now - 795))
    write_hold(run, "alpha", Hold(GuardKind.BAD, 0.875, 0.2, HELD_FOR, now - 5, 0, tuple(examples)))


# state → (what is written into the run, whether a supervisor holds its lock)
STATES: dict[str, tuple[Callable[[RunDir], None], bool]] = {
    "created": (_nothing, False),
    "starting": (_starting, True),
    "running": (lambda run: _past(run, job_status()), True),
    "paused": (lambda run: _past(run, _with(job_status(in_flight=0), DatasetState.PAUSED)), True),
    "held": (_held, True),
    "failed": (_failed, False),
    "finished": (_finished, False),
    "supervisor dead": (lambda run: _past(run, job_status()), False),
}


@contextmanager
def run_in(state: str, folder: Path) -> Iterator[RunDir]:
    """A run in that state below `folder`/runs."""
    run = make_run(folder)
    write, alive = STATES[state]
    write(run)
    if alive:
        with holding_lock(run, time.time()):
            yield run
    else:
        if state != "created":
            run.lock.touch()
        yield run
