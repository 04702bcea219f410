"""Owns one server in a container that Headway started: proves by its id and labels that it is ours, watches it, ends it.
docker_command.py speaks to Docker; every question to it runs beside the supervisor's loop."""

from __future__ import annotations

import asyncio
import os
import secrets
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace

import aiohttp

from backend.config import RunConfig
from backend.job import server_log
from backend.job.container_command import (
    LAUNCH_LABEL,
    REPLICA_LABEL,
    RUN_LABEL,
    ContainerCommand,
    container_command,
    container_name,
)
from backend.job.docker_command import ContainerFacts, Docker, DockerError, explain_docker_error
from backend.job.identity import check_key
from backend.job.launch_command import LOOPBACK, redact, wanted_port
from backend.job.ports import describe_holder, free_port, is_free, refuse_taken_port
from backend.job.process_tree import ProcessMark, all_processes, boot_id, descendants, is_alive, read_stat, send_signal
from backend.job.replica import (
    AbortFailed,
    AdoptOutcome,
    AdoptResult,
    GpuMemoryUsed,
    ReplicaObservation,
    ReplicaPhase,
    StartRefused,
    StopReport,
)
from backend.job.replica_watch import ReplicaWatch
from backend.job.server_probe import abort_requests
from backend.job.server_record import ServerRecord, load_record, new_api_key, remove_record, write_launch
from backend.job.server_stop import StopTimes, report_stop
from backend.run_dir import RunDir

_INSPECT_EVERY_S = 2.0
_PATIENCE_S = 0.2


class ContainerServer:
    """One replica that is a container."""

    def __init__(
        self, config: RunConfig, run: RunDir, environ: Mapping[str, str], index: int, gpu_memory_used: GpuMemoryUsed
    ) -> None:
        self.name = str(index)
        self._config = config
        self._run = run
        self._environ = environ
        self._index = index
        self._docker = Docker(config.engine.docker)
        self._watch = ReplicaWatch(config, run, environ, index, gpu_memory_used)
        self._published = True  # Docker holds the port for the container, so nobody else can answer on it
        self._starter: subprocess.Popen[bytes] | None = None  # `docker run`, until it has answered
        self._follower: subprocess.Popen[bytes] | None = None  # `docker logs -f`
        self._facts: ContainerFacts | None = None
        self._inspection: asyncio.Task[ContainerFacts | None] | None = None
        self._inspected_at = 0.0

    # taking over

    def adopt(self) -> AdoptResult:
        """Keeps a former supervisor's container if it is proven ours, removes what is ours and of no use."""
        record = load_record(self._run.servers, self.name)
        try:
            return self._adopt(record)
        except DockerError as error:
            if record is None:
                return AdoptResult(AdoptOutcome.NOTHING, str(error))
            return AdoptResult(AdoptOutcome.FOREIGN, f"the container of replica {self.name} cannot be looked at: {error}")

    def _adopt(self, record: ServerRecord | None) -> AdoptResult:
        containers = [facts for ident in self._ids() if (facts := self._docker.inspect(ident)) is not None]
        ours = [facts for facts in containers if record is not None and facts.labels.get(LAUNCH_LABEL) == record.launch]
        kept: ContainerFacts | None = None
        reason = None
        if record is not None and ours:
            kept, reason = ours[0], self._objection(record, ours[0])
        for facts in containers:
            if facts is not kept or reason is not None:
                self._docker.remove(facts.id)
        if record is not None and kept is not None and reason is None:
            self._take_over(record, kept)
            return AdoptResult(AdoptOutcome.ADOPTED, f"container {kept.name} runs and answers to its key")
        self._forget_files()
        if any(facts.running for facts in containers):
            return AdoptResult(
                AdoptOutcome.REAPED, reason or "a container of an earlier start, without its record, was removed"
            )
        port = wanted_port(self._config.engine, self._index)
        if port and not is_free(port):
            return AdoptResult(AdoptOutcome.FOREIGN, f"port {port} is held by {describe_holder(port)}, which is not ours")
        return AdoptResult(AdoptOutcome.NOTHING)

    def _ids(self) -> list[str]:
        replica = f"{REPLICA_LABEL}={self.name}"
        ids = self._docker.ids_with_label(f"{RUN_LABEL}={self._run.root}")
        return [ident for ident in ids if ident in set(self._docker.ids_with_label(replica))]

    def _objection(self, record: ServerRecord, facts: ContainerFacts) -> str | None:
        """Why this container is not kept; None: it is proven ours and of use."""
        if not facts.running:
            return f"container {facts.name} had ended"
        if record.container not in (None, facts.id):
            return f"container {facts.name} has another id than its record"
        if check_key(record) is False:
            return f"the server in container {facts.name} does not know the API key of its record"
        return None

    def _take_over(self, record: ServerRecord, facts: ContainerFacts) -> None:
        now = time.time()
        self._facts = facts
        phase = ReplicaPhase.LOADING if record.ready_at is None else ReplicaPhase.READY
        self._watch.begin(replace(record, container=facts.id), phase, now)
        if record.main is None or not is_alive(record.main):  # who copied its output has ended as well
            log = self._watch.log_path
            self._follow(facts.id, since=log.stat().st_mtime if log.exists() else None)

    # starting

    def launch(self, now: float) -> None:
        """Begins `docker run` and returns at once. Raises StartRefused."""
        if self._watch.record is not None and self._facts is not None and self._facts.running:
            raise StartRefused(f"replica {self.name} still has container {self._facts.name}: stop it first.")
        engine, launch = self._config.engine, secrets.token_hex(8)
        port = wanted_port(engine, self._index) or free_port()
        refuse_taken_port(port)
        api_key = new_api_key()
        key_path, env_path = (self._run.servers / f"{self.name}.{suffix}" for suffix in ("yaml", "env"))
        command = container_command(
            self._config,
            self._environ,
            run=self._run.root,
            replica=self.name,
            index=self._index,
            launch=launch,
            port=port,
            api_key=api_key,
            key_path=key_path,
            env_path=env_path,
        )
        record = ServerRecord(
            replica=self.name,
            launch=launch,
            boot=boot_id(),
            host=LOOPBACK,
            port=port,
            api_key=api_key,
            command=[engine.docker, "run", "-d", *redact(command.arguments)],
            launched_at=now,
            log_offset=server_log.log_bytes(self._watch.log_path),
            gpu_memory_before_bytes=self._watch.gpu_memory_used(),
        )
        write_launch(self._run.servers, record, {key_path.name: command.yaml, env_path.name: command.env_file})
        self._published = command.published
        self._facts, self._follower, self._inspected_at = None, None, 0.0
        self._starter = self._run_docker(command)
        self._watch.begin(record, ReplicaPhase.LOADING, now)

    def _run_docker(self, command: ContainerCommand) -> subprocess.Popen[bytes]:
        log = server_log.open_log(self._watch.log_path)
        try:
            return subprocess.Popen(
                [self._config.engine.docker, "run", "-d", *command.arguments],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        except OSError as error:
            self._forget_files()
            raise StartRefused(
                f"{self._config.engine.docker} cannot be run: {error.strerror}. Install Docker, or correct engine.docker."
            ) from error
        finally:
            os.close(log)

    def _forget_files(self) -> None:
        remove_record(self._run.servers, self.name)
        (self._run.servers / f"{self.name}.env").unlink(missing_ok=True)

    def _follow(self, container: str, *, since: float | None = None) -> None:
        log = server_log.open_log(self._watch.log_path)
        try:
            self._follower = self._docker.follow_logs(container, log, since=since)
        finally:
            os.close(log)
        stat = read_stat(self._follower.pid)
        if self._watch.record is not None and stat is not None:
            self._watch.remember(replace(self._watch.record, main=stat.mark))

    # watching

    async def observe(self, session: aiohttp.ClientSession, now: float) -> ReplicaObservation:
        """What is seen now; waits at most a fraction of a second for Docker and the server."""
        watch = self._watch
        if watch.is_watching and watch.record is not None and self._started(watch.record, now):
            await self._inspect(now)
            if self._facts is not None and not self._facts.running:
                limit = "The container exceeded its memory limit. Raise --memory in engine.docker_args. "
                watch.note_end(self._facts.exit_code, now, first=limit if self._facts.out_of_memory else "")
            else:
                server_log.cut_if_large(watch.log_path)
                await watch.ask(session, now)
                self._judge_load(now)
        return watch.observation(self._facts.pid if self._facts is not None and self._facts.running else None)

    def _judge_load(self, now: float) -> None:
        running = self._facts is not None and self._facts.running
        self._watch.judge_load(now, self._processes(), port_is_ours=running, must_take_key=not self._published)

    def _started(self, record: ServerRecord, now: float) -> bool:
        """Whether `docker run` has answered; a refusal ends the start."""
        if self._starter is None:
            return True
        code = self._starter.poll()
        if code is None:  # it may pull the image
            self._judge_load(now)
            return False
        self._starter = None
        (self._run.servers / f"{self.name}.env").unlink(missing_ok=True)
        if code != 0:
            self._watch.enter(ReplicaPhase.START_FAILED, now, explain_docker_error("run", self._watch.log()))
            self._watch.exit_code = code
            return False
        self._follow(container_name(self._run.name, self.name, record.launch))
        return True

    async def _inspect(self, now: float) -> None:
        record = self._watch.record
        if self._inspection is None and now - self._inspected_at >= _INSPECT_EVERY_S and record is not None:
            self._inspected_at = now
            name = container_name(self._run.name, self.name, record.launch)
            self._inspection = asyncio.create_task(asyncio.to_thread(self._docker.inspect, name))
        if self._inspection is None:
            return
        await asyncio.wait({self._inspection}, timeout=_PATIENCE_S)
        if not self._inspection.done():
            return
        task, self._inspection = self._inspection, None
        if self._watch.record is None:
            return  # stopped meanwhile
        error = task.exception()
        if isinstance(error, DockerError):
            return  # Docker not answering says nothing about the container: the last facts stand
        facts = task.result()
        if facts is None and self._facts is not None:
            facts = replace(self._facts, running=False, exit_code=None, pid=None)  # somebody removed it
        if facts is not None and record is not None and record.container != facts.id:
            self._watch.remember(replace(record, container=facts.id))
        self._facts = facts

    def _processes(self) -> list[ProcessMark]:
        """The container's processes as they are seen from here (its first one and all below)."""
        if self._facts is None or self._facts.pid is None:
            return []
        alive = all_processes()
        pids = {self._facts.pid} | descendants(self._facts.pid, alive)
        return [alive[pid].mark for pid in pids if pid in alive]

    # ending

    async def stop(self, *, deadline_s: float) -> StopReport:
        """Ends and removes the container, and verifies it."""
        record = self._watch.record
        if record is None:
            return StopReport(clean=True, message=f"replica {self.name}: nothing was running")
        if self._watch.probe is not None:
            self._watch.probe.forget()
        if self._starter is not None:
            self._starter.kill()
            await asyncio.to_thread(self._starter.wait)
            self._starter = None
        killed, troubles = 0, []
        try:
            killed = await asyncio.to_thread(self._end_containers, deadline_s)
        except DockerError as error:
            troubles.append(str(error))
        self._end_follower(record)
        how = f"its container was killed after {deadline_s:g} s" if killed else "its container ended when asked"
        report = await report_stop(
            record,
            StopTimes(deadline_s),
            self._watch.gpu_memory_used,
            how=how,
            troubles=troubles,
            exit_code=self._watch.exit_code,
            killed=killed,
        )
        if not troubles:
            self._forget_files()
            self._facts = None
            self._watch.end(time.time())
        return report

    def _end_containers(self, deadline_s: float) -> int:
        """Stops and removes every container of this replica. Returns how many had to be killed."""
        killed = 0
        for ident in self._ids():
            facts = self._docker.inspect(ident)
            if facts is not None and facts.running:
                self._docker.stop(ident, deadline_s)
                facts = self._docker.inspect(ident)
                if facts is not None and facts.running:
                    self._docker.kill(ident)
                    facts = self._docker.inspect(ident)
                if facts is not None and facts.exit_code == 137:
                    killed += 1
            if facts is not None:
                self._watch.exit_code = facts.exit_code
            self._docker.remove(ident)
        return killed

    def _end_follower(self, record: ServerRecord) -> None:
        if record.main is not None:
            send_signal(record.main, signal.SIGKILL)
        if self._follower is not None:
            self._follower.kill()
            self._follower.wait()
            self._follower = None

    async def abort(self, session: aiohttp.ClientSession, rids: Sequence[str] | None) -> None:
        """Aborts these requests, or all. Raises AbortFailed."""
        endpoint = self._watch.endpoint()
        if endpoint is None:
            raise AbortFailed(f"replica {self.name} has no server to abort requests on.")
        await abort_requests(session, endpoint, rids)
