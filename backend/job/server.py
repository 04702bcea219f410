"""Owns one server process of this machine (local and simulated engines): starts it, watches it, takes it over from a former
supervisor, ends it with all its children. When to do what is decided elsewhere."""

from __future__ import annotations

import os
import secrets
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import aiohttp

from backend.config import RunConfig
from backend.job import server_log
from backend.job.identity import Verdict, holds_port, owned_processes, processes_of_replica, prove
from backend.job.launch_command import LaunchCommand, gpus_of, local_command, takes_key, wanted_port
from backend.job.load_movement import LoadMovement, read_signs
from backend.job.ports import describe_holder, free_port, is_free
from backend.job.process_tree import ProcessMark, boot_id, is_alive, read_stat
from backend.job.replica import (
    AbortFailed,
    AdoptOutcome,
    AdoptResult,
    Endpoint,
    GpuMemoryUsed,
    ReplicaObservation,
    ReplicaPhase,
    StartRefused,
    StopReport,
)
from backend.job.server_probe import ServerProbe, abort_requests
from backend.job.server_record import ServerRecord, load_record, remove_record, save_record, write_private
from backend.job.server_stop import StopTimes, end_processes, kill_now, wait_for_gpu_memory, wait_for_port
from backend.job.start_errors import explain_exit, explain_failed_start, last_words
from backend.run_dir import RunDir

_LOOK_AT_CHILDREN_EVERY_S = 3.0


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
        self._gpu_memory_used = gpu_memory_used
        self._record: ServerRecord | None = None
        self._popen: subprocess.Popen[bytes] | None = None
        self._phase = ReplicaPhase.ABSENT
        self._since = time.time()
        self._reason: str | None = None
        self._exit_code: int | None = None
        self._probe: ServerProbe | None = None
        self._movement = LoadMovement(self._since)
        self._children_at = 0.0

    # adopting

    def adopt(self) -> AdoptResult:
        """Keeps a former supervisor's server if it is proven ours (ready or loading), kills what is ours and of no use."""
        record = self._record_left_behind()
        if record is None:
            return self._foreign_or_nothing()
        proof = prove(record)
        if proof.verdict in (Verdict.SERVING, Verdict.LOADING):
            self._take(record, ReplicaPhase.READY if proof.verdict is Verdict.SERVING else ReplicaPhase.LOADING, time.time())
            return AdoptResult(AdoptOutcome.ADOPTED, proof.reason)
        found = len(owned_processes(record))
        left = kill_now(record)
        if left:
            self._record = record  # stop() may try again
            return AdoptResult(AdoptOutcome.REAPED, f"{proof.reason}; processes {list(left)} could not be ended")
        remove_record(self._run.servers, self.name)
        if found:
            return AdoptResult(AdoptOutcome.REAPED, f"{proof.reason}; {found} processes of it were ended")
        return self._foreign_or_nothing()

    def _record_left_behind(self) -> ServerRecord | None:
        """The record, completed where the supervisor died before it could write down whom it had started."""
        record = load_record(self._run.servers, self.name)
        if record is not None and record.main is not None:
            return record
        by_launch = processes_of_replica(self._run.root, self.name)
        if record is not None:
            leaders = [stat for stat in by_launch.get(record.launch, []) if stat.session == stat.mark.pid]
            return replace(record, main=leaders[0].mark if leaders else None)
        for launch, stats in by_launch.items():  # the record is lost: without the key the server is of no use
            leaders = [stat for stat in stats if stat.session == stat.mark.pid]
            main = leaders[0].mark if leaders else None
            return ServerRecord(
                self.name, launch, "", "127.0.0.1", 0, None, [], time.time(), 0, main, [stat.mark for stat in stats]
            )
        return None

    def _foreign_or_nothing(self) -> AdoptResult:
        port = wanted_port(self._config.engine, self._index)
        if port and not is_free(port):
            return AdoptResult(AdoptOutcome.FOREIGN, f"port {port} is held by {describe_holder(port)}, which is not ours")
        return AdoptResult(AdoptOutcome.NOTHING)

    def _take(self, record: ServerRecord, phase: ReplicaPhase, now: float) -> None:
        self._record = record
        self._probe = ServerProbe(record.base_url, record.api_key)
        self._probe.version = record.version
        self._movement = LoadMovement(now)
        self._exit_code = None
        self._enter(phase, now)
        if phase is ReplicaPhase.READY and record.ready_at is None:
            self._remember(replace(record, ready_at=now))
        else:
            self._remember(record)

    # starting

    def launch(self, now: float) -> None:
        """Starts the server in a session of its own, with its output in a file. Raises StartRefused."""
        if self._record is not None:
            left = owned_processes(self._record)
            if left:
                first = min(mark.pid for mark in left)
                raise StartRefused(f"replica {self.name} still has {len(left)} processes (pid {first}): stop it first.")
        launch = secrets.token_hex(8)
        command = self._command(launch)
        log_path = self._run.server_log(self.name)
        record = ServerRecord(
            replica=self.name,
            launch=launch,
            boot=boot_id(),
            host=command.host,
            port=command.port,
            api_key=self._api_key,
            command=command.redacted,
            launched_at=now,
            log_offset=server_log.log_bytes(log_path),
            gpu_memory_before_bytes=self._gpu_memory_used(self._gpus),
        )
        if command.yaml is not None:
            write_private(self._key_path, command.yaml.encode())
        save_record(self._run.servers, record)  # before the process: whoever finds it later can prove that it is ours
        self._popen = self._start(command, log_path)
        stat = read_stat(self._popen.pid)
        main = ProcessMark(self._popen.pid, stat.mark.start_ticks if stat is not None else 0)
        self._children_at = now
        self._take(replace(record, main=main), ReplicaPhase.LOADING, now)

    @property
    def _key_path(self) -> Path:
        return self._run.servers / f"{self.name}.yaml"

    @property
    def _gpus(self) -> list[int | str] | None:
        return gpus_of(self._config.engine, self._index, self._environ)

    def _command(self, launch: str) -> LaunchCommand:
        engine = self._config.engine
        self._api_key = f"headway-{secrets.token_hex(24)}" if takes_key(engine) else None
        port = wanted_port(engine, self._index) or free_port()
        command = local_command(
            self._config,
            self._environ,
            run=str(self._run.root),
            replica=self.name,
            index=self._index,
            launch=launch,
            port=port,
            api_key=self._api_key,
            key_path=self._key_path,
        )
        # SGLang binds its port only after the model is loaded: a conflict would cost the whole load.
        if not is_free(port, command.host):
            raise StartRefused(
                f"port {port} is held by {describe_holder(port)}. End that process, or set engine.port to a free port "
                "(0 lets Headway choose one)."
            )
        return command

    def _start(self, command: LaunchCommand, log_path: Path) -> subprocess.Popen[bytes]:
        log = server_log.open_log(log_path)
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
        if self._phase in (ReplicaPhase.LOADING, ReplicaPhase.READY):
            await self._look(session, now)
        record, probe = self._record, self._probe
        alive = record is not None and self._is_alive(record)
        return ReplicaObservation(
            replica=self.name,
            phase=self._phase,
            since=self._since,
            endpoint=self._endpoint() if self._phase is ReplicaPhase.READY else None,
            pid=record.main.pid if alive and record is not None and record.main is not None else None,
            exit_code=self._exit_code,
            reason=self._reason,
            last_movement_at=self._movement.last_movement_at if self._phase is ReplicaPhase.LOADING else None,
            version=probe.version if probe is not None else None,
            answers=probe.ready if probe is not None and self._phase is ReplicaPhase.READY else None,
            command=record.command if record is not None else [],
        )

    async def _look(self, session: aiohttp.ClientSession, now: float) -> None:
        record, probe = self._record, self._probe
        if record is None or probe is None:
            return
        if not self._is_alive(record):
            self._note_end(record, now)
            return
        if now - self._children_at >= _LOOK_AT_CHILDREN_EVERY_S:
            self._children_at = now
            self._note_children(record)
            server_log.cut_if_large(self._run.server_log(self.name))
        await probe.look(session, now, urgent=self._phase is ReplicaPhase.LOADING)
        if probe.version is not None and probe.version != record.version:
            self._remember(replace(self._record or record, version=probe.version))
        if self._phase is ReplicaPhase.LOADING:
            self._look_at_load(probe, now)

    def _look_at_load(self, probe: ServerProbe, now: float) -> None:
        record = self._record
        if record is None:
            return
        processes = owned_processes(record, read_environments=False)
        # While the model loads, another server may sit on the port and answer: only the listener's owner counts.
        if probe.ready and holds_port(record.port, processes) and self._is_alive(record):
            self._enter(ReplicaPhase.READY, now)
            self._remember(replace(record, ready_at=now))
            return
        size = server_log.log_bytes(self._run.server_log(self.name))
        self._movement.look(read_signs(size, processes, self._gpu_memory_used(self._gpus)), now)
        still_s = now - self._movement.last_movement_at
        if still_s > self._config.engine.ready_timeout_s:
            said = last_words(self._log(record))
            self._enter(
                ReplicaPhase.START_FAILED,
                now,
                f"The server did not become ready, and for {still_s:.0f} s nothing moved (log, disk, memory, processes). "
                + (f"The last it said: {said} " if said else "It printed nothing. ")
                + "If the model only needs longer, raise engine.ready_timeout_s.",
            )

    def _note_end(self, record: ServerRecord, now: float) -> None:
        self._exit_code = self._popen.returncode if self._popen is not None else None
        log, model = self._log(record), self._config.model.path
        if self._phase is ReplicaPhase.READY:
            reason = explain_exit(log, self._exit_code, model=model, port=record.port)
            self._enter(ReplicaPhase.EXITED, now, reason)
        else:
            reason = explain_failed_start(log, self._exit_code, model=model, port=record.port)
            self._enter(ReplicaPhase.START_FAILED, now, reason)

    def _note_children(self, record: ServerRecord) -> None:
        children = sorted(owned_processes(record, read_environments=False), key=lambda mark: mark.pid)
        children = [mark for mark in children if mark != record.main]
        if children != record.children:
            self._remember(replace(record, children=children))

    def _log(self, record: ServerRecord) -> str:
        return server_log.read_tail(self._run.server_log(self.name), record.log_offset)

    def _is_alive(self, record: ServerRecord) -> bool:
        if self._popen is not None:
            return self._popen.poll() is None
        return record.main is not None and is_alive(record.main)

    def _enter(self, phase: ReplicaPhase, now: float, reason: str | None = None) -> None:
        self._phase, self._since, self._reason = phase, now, reason

    def _remember(self, record: ServerRecord) -> None:
        self._record = record
        save_record(self._run.servers, record)

    def _endpoint(self) -> Endpoint | None:
        record = self._record
        if record is None:
            return None
        return Endpoint(self.name, record.base_url, record.api_key, record.launch, owned=True)

    # ending

    async def stop(self, *, deadline_s: float) -> StopReport:
        """Ends the server with everything it started, and verifies it."""
        record = self._record
        if record is None:
            return StopReport(clean=True, message=f"replica {self.name}: nothing was running")
        if self._probe is not None:
            self._probe.forget()
        times = StopTimes(deadline_s)
        ended = await end_processes(record, times, self._reap)
        troubles = [f"processes {list(ended.left)} cannot be ended"] if ended.left else []
        for trouble in (
            await wait_for_port(record, times),
            await wait_for_gpu_memory(record.gpu_memory_before_bytes, lambda: self._gpu_memory_used(self._gpus), times),
        ):
            if trouble is not None:
                troubles.append(trouble)
        exit_code = self._popen.returncode if self._popen is not None else None
        if not ended.left:
            remove_record(self._run.servers, self.name)
            self._record, self._popen, self._probe = None, None, None
            self._enter(ReplicaPhase.ABSENT, time.time())
        how = "ended when asked" if ended.politely else f"did not end within {deadline_s:g} s"
        if ended.killed:
            how += f"; {ended.killed} processes were killed"
        verified = "; ".join(troubles) if troubles else "no process is left, its port is free"
        return StopReport(not troubles, f"replica {self.name}: {how}; {verified}", exit_code, ended.killed)

    def _reap(self) -> None:
        if self._popen is not None:
            self._popen.poll()

    async def abort(self, session: aiohttp.ClientSession, rids: Sequence[str] | None) -> None:
        """Aborts these requests, or all. Raises AbortFailed."""
        endpoint = self._endpoint()
        if endpoint is None:
            raise AbortFailed(f"replica {self.name} has no server to abort requests on.")
        await abort_requests(session, endpoint, rids)
