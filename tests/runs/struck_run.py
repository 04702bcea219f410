"""A whole run that is struck: SIGKILL of its supervisor, its servers or their children, at moments good and bad."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import time
from collections.abc import Callable
from contextlib import suppress

from live_run import LiveRun

from backend.config import load
from backend.control.intents import want_dataset, want_redo, want_run, want_setting
from backend.control.start import SUPERVISOR, supervisor_environment
from backend.heartbeat import Heartbeat, lock_is_held, read_heartbeat, supervisor_pid
from backend.job.process_tree import all_processes, command_line, descendants
from backend.job.server_record import ServerRecord, load_record
from backend.records import DatasetState, RunPhase

FINISH_LIMIT_S = 60.0
# Three starts in a row that fail end the run, as they should: no more than two are killed before one was ready.
KILLED_STARTS = 2

VICTIMS = ("supervisor", "one server", "servers", "supervisor and servers", "scheduler", "everything")
GESTURES = ("none", "pause", "pause now", "kill", "redo", "concurrency")
MOMENTS = ("working", "young", "sealing", "adopting", "loading", "stopping early", "stopping", "leaving")
STOPS = ("stopping early", "stopping", "leaving")


class StruckRun:
    """One run that is struck. The supervisor is our own child, so that it can be killed before it has said anything."""

    def __init__(self, run: LiveRun, name: str) -> None:
        """`name` is what a failure is told by, and what the dice come from."""
        self.live, self.run, self.name, self.dice = run, run.run, name, random.Random(name)
        config = load(self.run.config)
        self.replicas = config.engine.replicas
        self.datasets = [dataset.name for dataset in config.datasets]
        self.to_resume: set[str] = set()
        self.supervisor: subprocess.Popen[bytes] | None = None
        self.ports: set[int] = set()
        self.killed_starts: dict[str, int] = {}
        self.log: list[str] = []

    def start(self) -> None:
        """As `start` does it, without waiting for the first heartbeat."""
        want_run(self.run, "running", "drill")
        self.run.create_folders()
        with self.run.supervisor_log().open("ab") as log:
            self.supervisor = subprocess.Popen(
                [*SUPERVISOR, str(self.run.root)],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd="/",
                env=supervisor_environment(),
                start_new_session=True,
            )

    def has_left(self) -> bool:
        return self.supervisor is None or self.supervisor.poll() is not None

    def records(self) -> list[ServerRecord]:
        found = [load_record(self.run.servers, str(index)) for index in range(self.replicas)]
        known = [record for record in found if record is not None]
        self.ports |= {record.port for record in known}
        return known

    # -- when ----------------------------------------------------------------------------------------------------------------

    def await_moment(self, moment: str) -> None:
        """Waits until the moment is there, or until it is clear that it will not come."""
        match moment:
            case "working":
                self._await_works()
                time.sleep(self.dice.uniform(0.0, 1.5))
            case "young":  # before, at or a little after the lock, the ledger's opening, the first heartbeat
                time.sleep(self.dice.uniform(0.0, 1.0))
            case "sealing":
                self._await(lambda: any(self.run.shards.glob("*/*.tmp")), 2.0)
                time.sleep(self.dice.choice((0.0, 0.0, 0.005, 0.02)))
            case "adopting":
                self._await(self._holds_the_lock, 5.0)
                time.sleep(self.dice.uniform(0.0, 0.4))
            case "loading":  # from before its record is written until it is ready
                self._await(lambda: any(record.ready_at is None for record in self.records()), 3.0)
                time.sleep(self.dice.uniform(0.0, 0.5))
            case "stopping early":  # while it starts, takes over or loads
                time.sleep(self.dice.uniform(0.0, 2.5))
                self._ask_to_stop()
                time.sleep(self.dice.uniform(0.0, 1.5))
            case "stopping":
                self._await_works()
                self._ask_to_stop()
                time.sleep(self.dice.uniform(0.0, 1.5))
            case "leaving":
                self._await_works()
                self._ask_to_stop()
                self._await(lambda: self._phase() in (RunPhase.STOPPING, RunPhase.STOPPED), 6.0)
                time.sleep(self.dice.uniform(0.0, 0.3))
            case _:
                raise AssertionError(moment)

    def _ask_to_stop(self) -> None:
        if self.dice.random() < 0.5:
            want_run(self.run, "stopped", "drill", now=self.dice.random() < 0.5)
        elif not self.has_left() and self.supervisor is not None:
            self.supervisor.terminate()

    def _await_works(self) -> None:
        self._await(lambda: (beat := self._beat()) is not None and beat.status.in_flight > 0, 4.0)

    def _holds_the_lock(self) -> bool:
        pid = self.supervisor.pid if self.supervisor else None
        return lock_is_held(self.run) and supervisor_pid(self.run) == pid

    def _beat(self) -> Heartbeat | None:
        beat = read_heartbeat(self.run)
        return beat if beat is not None and self.supervisor is not None and beat.pid == self.supervisor.pid else None

    def _phase(self) -> RunPhase | None:
        beat = self._beat()
        return None if beat is None else beat.phase

    def _await(self, seen: Callable[[], bool], limit_s: float) -> None:
        deadline = time.monotonic() + limit_s
        while not seen() and not self.has_left() and time.monotonic() < deadline:
            time.sleep(0.003)

    # -- what else happens at that time ----------------------------------------------------------------------------------------

    def gesture(self, what: str) -> None:
        """An intent, read or not read when the strike comes."""
        dataset = self.dice.choice(self.datasets)
        match what:
            case "pause" | "pause now":
                want_dataset(self.run, dataset, "paused", "drill", now=what == "pause now")
                self.to_resume.add(dataset)
            case "kill":
                want_dataset(self.run, dataset, "killed", "drill")
                self.to_resume.add(dataset)
            case "redo":
                want_redo(self.run, self.datasets[0], ["truncated"], "drill")
            case "concurrency":
                want_setting(self.run, "concurrency", str(self.dice.randint(8, 40)), "drill")
        self.log.append(f"{what} ({dataset})")

    def resume(self) -> None:
        """What was paused or killed is to go on."""
        for dataset in sorted(self.to_resume):
            want_dataset(self.run, dataset, "running", "drill")
        self.to_resume.clear()

    # -- whom ----------------------------------------------------------------------------------------------------------------

    def strike(self, moment: str, victim: str, gesture: str) -> None:
        """Kills the victim at the moment, after the gesture; the supervisor is started again if it is dead or has left."""
        at_once = self.dice.random() < 0.5
        if not at_once:
            self.gesture(gesture)
        self.await_moment(moment)
        if at_once:
            self.gesture(gesture)
            time.sleep(self.dice.uniform(0.0, 0.4))
        if self.has_left() and self._phase() is RunPhase.FINISHED:
            return
        records = self.records()
        self.log.append(f"{moment}: {victim}")
        if victim in ("supervisor", "supervisor and servers", "everything"):
            self.kill_supervisor()
        if victim in ("servers", "supervisor and servers"):
            for record in records:
                self._kill_server(record)
        elif victim == "one server" and records:
            self._kill_server(self.dice.choice(records))
        elif victim == "scheduler" and records:
            self._kill_scheduler(self.dice.choice(records))
        elif victim == "everything":
            for pid in self.live.processes():
                _kill(pid)
        if self.has_left() or moment in STOPS:
            self.await_end()
            self.start()

    def kill_supervisor(self) -> None:
        if self.supervisor is not None:
            self.supervisor.kill()
            self.supervisor.wait(10)

    def await_end(self) -> None:
        """A supervisor that was asked to stop and was not killed leaves by itself."""
        assert self.supervisor is not None
        try:
            code = self.supervisor.wait(FINISH_LIMIT_S)
        except subprocess.TimeoutExpired:
            raise AssertionError("the supervisor did not leave") from None
        # SIGTERM before it listens to signals ends it as well
        assert code in (0, -signal.SIGKILL, -signal.SIGTERM), f"the supervisor left with {code}"

    def _kill_server(self, record: ServerRecord) -> None:
        if record.main is not None and self._may_kill(record):
            _kill(record.main.pid)

    def _kill_scheduler(self, record: ServerRecord) -> None:
        if record.main is None or not self._may_kill(record):
            return
        below = descendants(record.main.pid, all_processes())
        for pid in [pid for pid in below if command_line(pid).startswith("sglang::scheduler")][:1]:
            _kill(pid)

    def _may_kill(self, record: ServerRecord) -> bool:
        if record.ready_at is not None:
            self.killed_starts[record.replica] = 0
            return True
        self.killed_starts[record.replica] = self.killed_starts.get(record.replica, 0) + 1
        return self.killed_starts[record.replica] <= KILLED_STARTS

    # -- the end -------------------------------------------------------------------------------------------------------------

    def finish(self) -> None:
        """Undisturbed to the end. An intent that came while it was leaving is for the next start."""
        self.resume()
        for _ in range(3):
            if self.has_left():
                self.start()
            self._await_finish()
            if all(dataset.state is DatasetState.DONE for dataset in self.live.status().datasets):
                return
        raise AssertionError("datasets are not done, however often the run is started")

    def _await_finish(self) -> None:
        deadline = time.monotonic() + FINISH_LIMIT_S
        while not self.has_left():
            self.records()
            assert time.monotonic() < deadline, "the run did not finish"
            time.sleep(0.05)
        self.await_end()
        assert self.live.status().phase is RunPhase.FINISHED

    def story(self) -> str:
        return f"{self.name}; strikes: {'; '.join(self.log)}\n{self.live.story()}"


def _kill(pid: int) -> None:
    with suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)
