"""Runs as tests of `control`, `report` and the CLI need them: made by `create`, with a past written by hand."""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

from backend.control.create import create
from backend.holds import Hold, fact_name, to_json
from backend.records import (
    DatasetState,
    DatasetStatus,
    EngineState,
    Facts,
    JobStatus,
    ReplicaStatus,
    Row,
    RunPhase,
)
from backend.rows import COLUMNS, record_from_row
from backend.run_dir import RunDir, open_ledger, open_state

CONFIG = """
name = "{name}"
[model]
path = "tiny"
[engine]
kind = "simulated"
[generation]
concurrency = 8
[[datasets]]
name = "alpha"
path = "prompts/alpha.jsonl"
token_budget = 100000
[[datasets]]
name = "beta"
path = "prompts/*.jsonl"
max_samples = 3
"""


def write_config(folder: Path, name: str = "demo", text: str = CONFIG) -> Path:
    """A configuration of two datasets with their prompts beside it: alpha has 5, beta has those and 5 more."""
    prompts = folder / "prompts"
    prompts.mkdir(parents=True, exist_ok=True)
    for dataset in ("alpha", "beta"):
        lines = (json.dumps({"id": f"{dataset}-{i}", "prompt": f"{dataset}: say {i}"}) for i in range(5))
        (prompts / f"{dataset}.jsonl").write_text("\n".join(lines) + "\n")
    path = folder / f"{name}.toml"
    path.write_text(text.format(name=name))
    return path


def make_run(folder: Path, name: str = "demo") -> RunDir:
    """`folder`/runs/`name`, created and never started."""
    return create(write_config(folder, name), folder / "runs")


def job_status(**changes: Any) -> JobStatus:
    """What a supervisor would say: alpha runs, beta waits, one replica is ready."""
    said: dict[str, Any] = {
        "phase": RunPhase.RUNNING,
        "concurrency": 8,
        "in_flight": 6,
        "datasets": (
            DatasetStatus("alpha", DatasetState.RUNNING, in_flight=6, prompts=5, token_budget=100000, retries=2, bad_lines=1),
            DatasetStatus("beta", DatasetState.WAITING, prompts=10, max_samples=3),
        ),
        "replicas": (
            ReplicaStatus(
                "0",
                EngineState.READY,
                pid=4321,
                url="http://127.0.0.1:9",
                version="0.5.3",
                since=1.0,
                command=("python", "-m", "sglang.launch_server", "--tp-size", "4"),
            ),
        ),
        "order": ("alpha", "beta"),
        "tokens_per_s": 1234.5,
        "requests_per_s": 2.5,
    }
    return JobStatus(**{**said, **changes})


def beat(run: RunDir, status: JobStatus, at: float, pid: int = 1) -> None:
    """A heartbeat, as the supervisor writes it."""
    with closing(open_state(run)) as con:
        con.execute(
            "INSERT OR REPLACE INTO heartbeat VALUES (1, ?, ?, 1, ?, ?)",
            (at, pid, status.phase.value, json.dumps(asdict(status))),
        )


def write_event(run: RunDir, message: str, at: float, severity: str = "info") -> None:
    """An event, as the supervisor writes it."""
    with closing(open_state(run)) as con:
        con.execute(
            "INSERT INTO events (at, kind, subject, severity, message, who, details)"
            " VALUES (?, 'run.told', 'run', ?, ?, 'supervisor', '{}')",
            (at, severity, message),
        )


def write_open_row(run: RunDir, dataset: str, sample_id: str, tokens: int, *, finish_reason: str = "stop") -> None:
    """A finished sample that is not sealed."""
    row = Row(
        dataset=dataset, sample_id=sample_id, position=0, turn=0, attempt=1, source="local", model="tiny",
        messages="{}", prompt_token_ids=None, prompt_tokens=10, raw_text="x", reasoning=None, answer="x", tool_calls=None,
        output_ids=None, completion_tokens=tokens, reasoning_tokens=None, cached_tokens=None, finish_reason=finish_reason,
        facts=Facts(), started_at=1.0, first_token_at=None, finished_at=2.0, server_epoch="0:1", cost_usd=None, error=None,
    )  # fmt: skip
    with closing(open_ledger(run)) as con:
        con.execute(
            f"INSERT INTO stored_rows ({', '.join(COLUMNS)}) VALUES ({', '.join('?' * len(COLUMNS))})", record_from_row(row)
        )


def write_sealed(run: RunDir, dataset: str, number: int, **sums: Any) -> None:
    """A line of the manifest."""
    values = {
        "dataset": dataset, "number": number, "path": f"shards/{dataset}/{number:08d}.parquet", "rows": 0, "prompt_tokens": 0,
        "completion_tokens": 0, "reasoning_tokens": 0, "rejected": 0, "truncated": 0, "bytes": 1, "sha256": "0",
        "first_finished_at": 1.0, "last_finished_at": 2.0, "sealed_at": 3.0,
    } | sums  # fmt: skip
    with closing(open_ledger(run)) as con:
        con.execute(
            f"INSERT INTO sealed_shards ({', '.join(values)}) VALUES ({', '.join('?' * len(values))})", tuple(values.values())
        )


def write_hold(run: RunDir, dataset: str, hold: Hold) -> None:
    """A guard held the dataset."""
    with closing(open_ledger(run)) as con:
        con.execute("INSERT OR REPLACE INTO facts VALUES (?, ?)", (fact_name(dataset), to_json([hold])))


def supersede(run: RunDir, dataset: str, sample_id: str, tokens: int, finish_reason: str = "stop") -> None:
    """A row that a redo replaced."""
    with closing(open_ledger(run)) as con:
        con.execute(
            "INSERT INTO superseded (dataset, sample_id, turn, attempt, position, prompt_tokens, completion_tokens,"
            " finish_reason, at, reason) VALUES (?, ?, 0, 1, 0, 10, ?, ?, 3.0, 'redo')",
            (dataset, sample_id, tokens, finish_reason),
        )


@contextmanager
def holding_lock(run: RunDir, changed_at: float) -> Iterator[None]:
    """The lock as a supervisor of this pid holds it; `changed_at` is when it took it, epoch seconds."""
    fd = os.open(run.lock, os.O_RDWR | os.O_CREAT)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        os.pwrite(fd, str(os.getpid()).encode(), 0)
        os.utime(run.lock, (changed_at, changed_at))
        yield
    finally:
        os.close(fd)
