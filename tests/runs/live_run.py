"""A whole run for tests: real supervisor, real server processes (the simulator unless told otherwise), a real run directory."""

from __future__ import annotations

import json
import os
import signal
import time
import urllib.request
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import tomli_w

from backend.control.create import create
from backend.control.intents import await_answer, want_dataset, want_probe, want_redo, want_route, want_run, want_setting
from backend.control.start import start
from backend.heartbeat import lock_is_held, read_heartbeat, supervisor_pid
from backend.job.process_tree import all_processes, read_environ
from backend.records import ApiStatus, DatasetStatus, Intent, JobStatus, Row
from backend.rows import row_from_record
from backend.run_dir import RunDir, open_ledger, open_state

Until = Callable[[JobStatus], Any]


class LiveRun:
    """One run under test. Whatever it started is killed by `cleanup`."""

    def __init__(self, run: RunDir) -> None:
        self.run = run
        self._read_answers_s = 15.0

    # -- acting --------------------------------------------------------------------------------------------------------------

    def start(self) -> int:
        """Starts a supervisor as the CLI does. Returns its pid."""
        start(self.run, "test", timeout_s=30.0)
        pid = supervisor_pid(self.run)
        assert pid is not None
        return pid

    def pause(self, dataset: str, *, now: bool = False) -> None:
        self._accepted(want_dataset(self.run, dataset, "paused", "test", now=now))

    def resume(self, dataset: str) -> None:
        self._accepted(want_dataset(self.run, dataset, "running", "test"))

    def kill(self, dataset: str) -> None:
        self._accepted(want_dataset(self.run, dataset, "killed", "test"))

    def redo(self, dataset: str, *outcomes: str) -> None:
        self._accepted(want_redo(self.run, dataset, outcomes, "test"))

    def set(self, key: str, text: str) -> None:
        self._accepted(want_setting(self.run, key, text, "test"))

    def route(self, dataset: str, to: str) -> None:
        self._accepted(want_route(self.run, dataset, to, "test"))

    def probe(self, api: str, prompts: int, cap_usd: float) -> None:
        self._accepted(want_probe(self.run, api, prompts, cap_usd, "test"))

    def api(self) -> ApiStatus:
        return self.status().apis[0]

    def stop(self, *, now: bool = False) -> None:
        self._accepted(want_run(self.run, "stopped", "test", now=now))

    def kill_supervisor(self) -> None:
        """SIGKILL, and wait until the lock is free."""
        pid = supervisor_pid(self.run)
        if pid is not None and lock_is_held(self.run):
            os.kill(pid, signal.SIGKILL)
            deadline = time.monotonic() + 10
            while lock_is_held(self.run):
                assert time.monotonic() < deadline
                time.sleep(0.01)

    def fault(self, name: str, argument: Any = None, *, replica: str = "0") -> None:
        """Switches a fault of the simulator on (False: off)."""
        url = next(r.url for r in self.status().replicas if r.name == replica)
        body = json.dumps({name: argument}).encode()
        request = urllib.request.Request(f"{url}/simulator/faults", body, {"Content-Type": "application/json"})
        with urllib.request.urlopen(request, timeout=10) as response:
            assert response.status == 200

    def cleanup(self) -> None:
        """Nothing of the run stays alive, whatever the test did."""
        self.kill_supervisor()
        for pid in self.processes():
            os.kill(pid, signal.SIGKILL)

    # -- looking -------------------------------------------------------------------------------------------------------------

    def status(self) -> JobStatus:
        heartbeat = read_heartbeat(self.run)
        assert heartbeat is not None
        return heartbeat.status

    def dataset(self, name: str) -> DatasetStatus:
        return next(d for d in self.status().datasets if d.name == name)

    def wait(self, seen: Until, timeout_s: float = 60.0, *, what: str = "") -> JobStatus:
        """Polls the status until `seen` is true of it."""
        deadline = time.monotonic() + timeout_s
        while True:
            heartbeat = read_heartbeat(self.run)
            if heartbeat is not None and seen(heartbeat.status):
                return heartbeat.status
            assert time.monotonic() < deadline, f"{what or 'not seen'}: {heartbeat}\n{self.story()}"
            time.sleep(0.05)

    def wait_dataset(self, name: str, seen: Callable[[DatasetStatus], Any], timeout_s: float = 60.0) -> None:
        self.wait(lambda status: any(d.name == name and seen(d) for d in status.datasets), timeout_s, what=name)

    def wait_left(self, timeout_s: float = 90.0) -> JobStatus:
        """Until the supervisor has left by itself and its lock is free."""
        status = self.wait(lambda s: s.exit_code is not None, timeout_s, what="did not leave")
        deadline = time.monotonic() + 10
        while lock_is_held(self.run):
            assert time.monotonic() < deadline
            time.sleep(0.02)
        return status

    def processes(self) -> list[int]:
        """Live processes of the run's servers, also those that no record names."""
        mine = str(self.run.root)
        return [
            pid for pid, stat in all_processes().items() if stat.alive and (read_environ(pid) or {}).get("HEADWAY_RUN") == mine
        ]

    def events(self) -> list[tuple[str, str]]:
        """(kind, message), oldest first."""
        with closing(open_state(self.run, read_only=True)) as con:
            return [(row["kind"], row["message"]) for row in con.execute("SELECT kind, message FROM events ORDER BY id")]

    def kinds(self) -> Counter[str]:
        return Counter(kind for kind, _ in self.events())

    def words(self, kind: str) -> str:
        """What a user reads of events of one kind."""
        return "\n".join(message for each, message in self.events() if each == kind)

    def story(self) -> str:
        """Events and the end of the log, for the message of a failed test."""
        log = self.run.supervisor_log().read_text(errors="replace")[-4000:] if self.run.supervisor_log().exists() else ""
        return "\n".join(f"{kind}: {message}" for kind, message in self.events()[-40:]) + "\n" + log

    def rows(self, dataset: str | None = None) -> list[Row]:
        """All rows, superseded ones included: of the shards in the manifest and of the open rows."""
        with closing(open_ledger(self.run, read_only=True)) as con:
            rows = [row_from_record(dict(record)) for record in con.execute("SELECT * FROM open_rows")]
            paths = [self.run.root / record["path"] for record in con.execute("SELECT path FROM sealed_shards")]
        for path in paths:
            rows += [row_from_record(record) for record in pq.ParquetFile(path).read().to_pylist()]
        return [row for row in rows if dataset is None or row.dataset == dataset]

    def superseded(self) -> set[tuple[str, str, int]]:
        with closing(open_ledger(self.run, read_only=True)) as con:
            return {(r["dataset"], r["sample_id"], r["attempt"]) for r in con.execute("SELECT * FROM superseded")}

    def check_exact(self, expected: Mapping[str, Iterable[str]] | None = None) -> None:
        """Every sample once, token sums equal in rows, ledger and status; nothing in shards/ but what the manifest names."""
        rows = [row for row in self.rows() if (row.dataset, row.sample_id, row.attempt) not in self.superseded()]
        counts = Counter((row.dataset, row.sample_id) for row in rows)
        assert [key for key, count in counts.items() if count != 1] == []
        for dataset in self.status().datasets:
            own = [row for row in rows if row.dataset == dataset.name]
            assert dataset.finished_samples == len(own)
            assert dataset.completion_tokens == sum(row.completion_tokens for row in own)
            if expected is not None and dataset.name in expected:
                assert {row.sample_id for row in own} == set(expected[dataset.name])
        with closing(open_ledger(self.run, read_only=True)) as con:
            named = {str(self.run.root / record["path"]) for record in con.execute("SELECT path FROM sealed_shards")}
        assert {str(path) for path in self.run.shards.rglob("*") if path.is_file()} == named

    def _accepted(self, intent: Intent) -> None:
        answer = await_answer(self.run, intent, self._read_answers_s)
        assert answer is not None, f"no answer to {intent}\n{self.story()}"
        assert answer.accepted, answer.message


def write_prompts(path: Path, count: int, *, marker: str = "") -> list[str]:
    """`count` prompts with ids `<stem>-<i>`. Returns the ids."""
    ids = [f"{path.stem}-{i}" for i in range(count)]
    lines = [json.dumps({"id": one, "prompt": f"{marker} What is {i} plus {i + 1}? Explain."}) for i, one in enumerate(ids)]
    path.write_text("\n".join(lines) + "\n")
    return ids


def make_run(
    folder: Path,
    datasets: list[dict[str, Any]],
    *,
    engine: Mapping[str, Any] | None = None,
    generation: Mapping[str, Any] | None = None,
    driver: Mapping[str, Any] | None = None,
    forecast: Mapping[str, Any] | None = None,
    guards: Mapping[str, Any] | None = None,
    args: Iterable[str] = (),
    **sections: Any,
) -> LiveRun:
    """A created run on the simulator, quick unless told otherwise. Paths in `datasets` are relative to `folder`.

    Nothing is held for what a fault makes of it unless `guards` are given.
    """
    config = {
        "name": "run",
        "model": {"path": "simulated/model"},
        "engine": {
            "kind": "simulated",
            "args": ["--load-s", "0.2", "--speed", "100", *args],
            "stall_after_s": 3,
            "stop_deadline_s": 5,
            "restart_backoff_s": 0.2,
            **(engine or {}),
        },
        "generation": {"concurrency": 16, "max_new_tokens": 300, **(generation or {})},
        "driver": {"disk_floor_gb": 0, "retry_backoff_s": 0.1, "retry_backoff_max_s": 1, **(driver or {})},
        "forecast": {**(forecast or {})},
        "guards": {"enabled": False} if guards is None else dict(guards),
        "datasets": datasets,
        **sections,
    }
    path = folder / "run.toml"
    path.write_text(tomli_w.dumps(config))
    return LiveRun(create(path, folder / "runs"))
