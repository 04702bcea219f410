"""Owns one server in a container that Headway started: proves by its id and labels that it is ours, watches it, ends it.
docker_command.py speaks to Docker; every question to it runs beside the supervisor's loop."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace

import aiohttp

from backend.config import RunConfig
from backend.job import server_log
from backend.job.container_command import ContainerCommand, container_command, container_name, publishes_port
from backend.job.container_look import ContainerLook
from backend.job.docker_command import ContainerFacts, Docker, DockerError, explain_docker_error
from backend.job.launch_command import redact
from backend.job.own_containers import end_containers, own_containers, proven_container
from backend.job.process_tree import is_alive, read_stat, send_signal
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
from backend.job.server_stop import StopTimes, await_gpu_memory, report_stop
from backend.run_dir import RunDir


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
        self._starter: subprocess.Popen[bytes] | None = None  # `docker run`, until it has answered
        self._follower: subprocess.Popen[bytes] | None = None  # `docker logs -f`
        self._look: ContainerLook | None = None

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
        containers = own_containers(self._docker, self._run.root, self.name)
        kept, reason = None, "a container of an earlier start, without its record"
        if record is not None:
            kept, reason = proven_container(record, containers)
        for facts in containers:
            if facts is not kept:
                self._docker.remove(facts.id)
        if record is not None and kept is not None:
            self._take_over(record, kept)
            return AdoptResult(AdoptOutcome.ADOPTED, reason)
        self._forget_files()
        if any(facts.running for facts in containers):
            await_gpu_memory(record.gpu_memory_before_bytes if record is not None else None, self._watch.gpu_memory_used)
            return AdoptResult(AdoptOutcome.REAPED, f"{reason}; it was removed")
        return foreign_or_nothing(self._config.engine, self._index)

    def _take_over(self, record: ServerRecord, facts: ContainerFacts) -> None:
        now = time.time()
        self._look = ContainerLook(self._docker, facts.id, facts)
        phase = ReplicaPhase.LOADING if record.ready_at is None else ReplicaPhase.READY
        self._watch.begin(replace(record, container=facts.id), phase, now)
        if record.main is None or not is_alive(record.main):  # who copied its output has ended as well
            log = self._watch.log_path
            self._follow(facts.id, since=log.stat().st_mtime if log.exists() else None)

    # starting

    def launch(self, now: float) -> None:
        """Begins `docker run` and returns at once. Raises StartRefused."""
        if self._look is not None and self._look.running:
            raise StartRefused(f"replica {self.name} still has a container that runs: stop it first.")
        engine = self._config.engine
        launch = choose_launch(engine, self._run, self._index)
        command = container_command(self._config, self._environ, launch)
        shown = [engine.docker, "run", "-d", *redact(command.arguments)]
        files = {"yaml": command.yaml, "env": command.env_file}
        record = write_down(launch, self._watch, command=shown, files=files, now=now)
        self._follower = None
        self._starter = self._begin_run(command)
        self._look = ContainerLook(self._docker, container_name(self._run.name, self.name, launch.id))
        self._watch.begin(record, ReplicaPhase.LOADING, now)

    def _begin_run(self, command: ContainerCommand) -> subprocess.Popen[bytes]:
        log = server_log.open_log(self._watch.log_path)
        try:
            return self._docker.begin_run(command.arguments, log)
        except DockerError as error:
            self._forget_files()
            raise StartRefused(str(error)) from error
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
        watch, look = self._watch, self._look
        if look is None:
            return watch.observation(None)
        if watch.is_watching and watch.record is not None and self._started(watch.record, look, now):
            await look.look(now)
            if look.facts is not None and watch.record is not None and self._look is look:
                await self._conclude(session, look, look.facts, now)
        return watch.observation(look.facts.pid if look.facts is not None else None)

    async def _conclude(self, session: aiohttp.ClientSession, look: ContainerLook, facts: ContainerFacts, now: float) -> None:
        watch = self._watch
        if watch.record is not None and watch.record.container != facts.id and facts.running:
            watch.remember(replace(watch.record, container=facts.id))
        if not facts.running:
            limit = "The container exceeded its memory limit. Raise --memory in engine.docker_args. "
            watch.note_end(facts.exit_code, now, first=limit if facts.out_of_memory else "")
            return
        server_log.cut_if_large(watch.log_path)
        watch.save_again()
        await watch.ask(session, now)
        self._judge_load(look, now)

    def _judge_load(self, look: ContainerLook, now: float) -> None:
        if self._watch.phase is ReplicaPhase.LOADING:
            self._watch.judge_load(
                now, look.processes(), port_is_ours=look.running, must_take_key=not publishes_port(self._config.engine)
            )

    def _started(self, record: ServerRecord, look: ContainerLook, now: float) -> bool:
        """Whether `docker run` has answered; a refusal ends the start."""
        if self._starter is None:
            return True
        code = self._starter.poll()
        if code is None:  # it may pull the image
            self._judge_load(look, now)
            return False
        self._starter = None
        (self._run.servers / f"{self.name}.env").unlink(missing_ok=True)
        if code != 0:
            self._watch.enter(ReplicaPhase.START_FAILED, now, explain_docker_error("run", self._watch.log()))
            self._watch.exit_code = code
            return False
        self._follow(container_name(self._run.name, self.name, record.launch))
        return True

    # ending

    async def stop(self, *, deadline_s: float) -> StopReport:
        """Ends and removes the container, and verifies it."""
        record = self._watch.record
        if record is None:
            return StopReport(clean=True, message=f"replica {self.name}: nothing was running")
        self._watch.forget_answers()
        if self._starter is not None:
            self._starter.kill()
            await asyncio.to_thread(self._starter.wait)
            self._starter = None
        killed, troubles = 0, []
        try:
            ended = await asyncio.to_thread(end_containers, self._docker, self._run.root, self.name, deadline_s)
            killed, self._watch.exit_code = ended.killed, ended.exit_code
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
            self._look = None
            self._watch.end(time.time())
        return report

    def _end_follower(self, record: ServerRecord) -> None:
        if record.main is not None:
            send_signal(record.main, signal.SIGKILL)
        if self._follower is not None:
            self._follower.kill()
            self._follower.wait()
            self._follower = None

    async def abort(self, session: aiohttp.ClientSession, rids: Sequence[str] | None) -> None:
        """Aborts these requests, or all. Raises AbortFailed."""
        await self._watch.abort(session, rids)
