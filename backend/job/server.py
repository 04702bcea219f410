"""Owns one server process of this machine (local and simulated engines): starts it, watches it, takes it over from a former
supervisor, ends it with all its children. When to do what is decided elsewhere."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace

import aiohttp

from backend.config import RunConfig
from backend.job import server_log
from backend.job.identity import Verdict, holds_port, owned_processes, processes_of_replica, prove
from backend.job.launch_command import LOOPBACK, LaunchCommand, local_command
from backend.job.process_tree import ProcessMark, boot_id, is_alive, read_stat
from backend.job.replica import (
    AdoptOutcome,
    AdoptResult,
    GpuMemoryUsed,
    ReplicaObservation,
    ReplicaPhase,
    StartRefused,
    StopReport,
)
from backend.job.replica_watch import ReplicaWatch
from backend.job.server_launch import choose_launch, foreign_or_nothing, write_down
from backend.job.server_record import ServerRecord, load_record, remove_record
from backend.job.server_stop import StopTimes, await_gpu_memory, end_processes, kill_now, report_stop
from backend.run_dir import RunDir

_LOOK_AT_CHILDREN_EVERY_S = 5.0


class ServerProcess:
    """One replica that is a process of this machine."""

    def __init__(
        self, config: RunConfig, run: RunDir, environ: Mapping[str, str], index: int, gpu_memory_used: GpuMemoryUsed
    ) -> None:
        self.name = str(index)
        self._config = config
        self._run = run
        self._environ = environ
        self._index = index
        self._watch = ReplicaWatch(config, run, environ, index, gpu_memory_used)
        self._popen: subprocess.Popen[bytes] | None = None
        self._children_at = 0.0

    # taking over

    def adopt(self) -> AdoptResult:
        """Keeps a former supervisor's server if it is proven ours (ready or loading), kills what is ours and of no use."""
        record = self._record_left_behind()
        if record is None:
            # A supervisor that was killed while it wrote or removed them may have left some: they hold a key.
            remove_record(self._run.servers, self.name)
            return foreign_or_nothing(self._config.engine, self._index)
        proof = prove(record)
        if proof.verdict in (Verdict.SERVING, Verdict.LOADING):
            was_ready = proof.verdict is Verdict.SERVING and record.ready_at is not None
            phase = ReplicaPhase.READY if was_ready else ReplicaPhase.LOADING
            self._watch.begin(record, phase, time.time())
            return AdoptResult(AdoptOutcome.ADOPTED, proof.reason)
        found = len(owned_processes(record))
        left = kill_now(record)
        if left:
            self._watch.record = record  # stop() may try again
            return AdoptResult(AdoptOutcome.REAPED, f"{proof.reason}; processes {list(left)} could not be ended")
        remove_record(self._run.servers, self.name)
        if found:
            await_gpu_memory(record.gpu_memory_before_bytes, self._watch.gpu_memory_used)
            return AdoptResult(AdoptOutcome.REAPED, f"{proof.reason}; {found} of its processes were ended")
        return foreign_or_nothing(self._config.engine, self._index)

    def _record_left_behind(self) -> ServerRecord | None:
        """The record, completed where the supervisor died before it could write down whom it had started."""
        record = load_record(self._run.servers, self.name)
        if record is not None and record.main is not None:
            return record
        by_launch = processes_of_replica(self._run.root, self.name)
        if record is not None:
            leaders = [stat for stat in by_launch.get(record.launch, []) if stat.session == stat.mark.pid]
            return replace(record, main=leaders[0].mark if leaders else None)
        for launch, stats in by_launch.items():  # the record is lost: without its key the server is of no use
            return ServerRecord(
                replica=self.name,
                launch=launch,
                boot=boot_id(),
                host=LOOPBACK,
                port=0,
                api_key=None,
                command=[],
                launched_at=time.time(),
                log_offset=0,
                children=[stat.mark for stat in stats],
            )
        return None

    # starting

    def launch(self, now: float) -> None:
        """Starts the server in a session of its own, with its output in a file. Raises StartRefused."""
        left = [] if self._watch.record is None else sorted(mark.pid for mark in owned_processes(self._watch.record))
        if left:
            raise StartRefused(f"replica {self.name} still has {len(left)} processes (pid {left[0]}): stop it first.")
        launch = choose_launch(self._config.engine, self._run, self._index)
        command = local_command(self._config, self._environ, launch)
        record = write_down(launch, self._watch, command=command.redacted, files={"yaml": command.yaml}, now=now)
        self._popen = self._start(command)
        stat = read_stat(self._popen.pid)
        main = ProcessMark(self._popen.pid, stat.mark.start_ticks if stat is not None else 0)
        self._children_at = now
        self._watch.begin(replace(record, main=main), ReplicaPhase.LOADING, now)

    def _start(self, command: LaunchCommand) -> subprocess.Popen[bytes]:
        try:
            log = server_log.open_log(self._watch.log_path)
        except OSError as error:
            remove_record(self._run.servers, self.name)
            raise StartRefused(
                f"{self._watch.log_path} cannot be written: {error.strerror}. Make room there, or correct its permissions."
            ) from error
        try:
            return subprocess.Popen(
                command.argv,
                env=command.environ,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
                close_fds=True,
            )
        except OSError as error:
            remove_record(self._run.servers, self.name)
            raise StartRefused(
                f"{command.argv[0]} cannot be run: {error.strerror}. Correct engine.python (or engine.command)."
            ) from error
        finally:
            os.close(log)

    # watching

    async def observe(self, session: aiohttp.ClientSession, now: float) -> ReplicaObservation:
        """What is seen now; waits at most a fraction of a second for an answer of the server."""
        watch = self._watch
        if watch.is_watching and watch.record is not None:
            if not self._main_is_alive():
                watch.note_end(self._popen.returncode if self._popen is not None else None, now)
            else:
                await self._look(watch.record, session, now)
        main = watch.record.main if watch.record is not None else None
        return watch.observation(main.pid if main is not None and self._main_is_alive() else None)

    async def _look(self, record: ServerRecord, session: aiohttp.ClientSession, now: float) -> None:
        if now - self._children_at >= _LOOK_AT_CHILDREN_EVERY_S:
            self._children_at = now
            self._note_children(record)
            self._watch.save_again()
            server_log.cut_if_large(self._watch.log_path)
        await self._watch.ask(session, now)
        if self._watch.phase is ReplicaPhase.LOADING:
            processes = owned_processes(record, read_environments=False)
            # While the model loads, another server may sit on the port and answer: only the listener's owner counts.
            ours = bool(holds_port(record.port, processes)) and self._main_is_alive()
            self._watch.judge_load(now, processes, port_is_ours=ours, must_take_key=False)

    def _note_children(self, record: ServerRecord) -> None:
        children = sorted(owned_processes(record, read_environments=False), key=lambda mark: mark.pid)
        children = [mark for mark in children if mark != record.main]
        if children != record.children:
            self._watch.remember(replace(record, children=children))

    def _main_is_alive(self) -> bool:
        if self._popen is not None:
            return self._popen.poll() is None
        main = self._watch.record.main if self._watch.record is not None else None
        return main is not None and is_alive(main)

    # ending

    async def stop(self, *, deadline_s: float) -> StopReport:
        """Ends the server with everything it started, and verifies it."""
        record = self._watch.record
        if record is None:
            return StopReport(clean=True, message=f"replica {self.name}: nothing was running")
        self._watch.forget_answers()
        times = StopTimes(deadline_s)
        ended = await end_processes(record, times, self._reap)
        how = "ended when asked" if ended.politely else f"did not end within {deadline_s:g} s"
        if ended.killed:
            how += f"; {ended.killed} processes were killed"
        troubles = [f"processes {list(ended.left)} cannot be ended"] if ended.left else []
        exit_code = self._popen.returncode if self._popen is not None else None
        report = await report_stop(
            record, times, self._watch.gpu_memory_used, how=how, troubles=troubles, exit_code=exit_code, killed=ended.killed
        )
        if not ended.left:
            remove_record(self._run.servers, self.name)
            self._popen = None
            self._watch.end(time.time())
        return report

    def _reap(self) -> None:
        if self._popen is not None:
            self._popen.poll()

    async def abort(self, session: aiohttp.ClientSession, rids: Sequence[str] | None) -> None:
        """Aborts these requests, or all. Raises AbortFailed."""
        await self._watch.abort(session, rids)
