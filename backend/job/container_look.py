"""What Docker says of one container, asked beside the supervisor's loop: a Docker engine that hangs delays nobody."""

from __future__ import annotations

import asyncio
from dataclasses import replace

from backend.job.docker_command import ContainerFacts, Docker, DockerError
from backend.job.process_tree import ProcessMark, all_processes, descendants

_EVERY_S = 2.0
# How long a look may wait for the answer it has just asked for; a later look takes what comes later.
_PATIENCE_S = 0.2


class ContainerLook:
    """The last facts known of one container."""

    def __init__(self, docker: Docker, name: str, facts: ContainerFacts | None = None) -> None:
        self.facts = facts  # None: not asked yet
        self._docker = docker
        self._name = name
        self._task: asyncio.Task[ContainerFacts | None] | None = None
        self._asked_at: float | None = None

    @property
    def running(self) -> bool:
        """Whether it is known to run."""
        return self.facts is not None and self.facts.running

    async def look(self, now: float) -> None:
        """Asks again if it is time, and waits a moment for the answer."""
        if self._task is None and (self._asked_at is None or now - self._asked_at >= _EVERY_S):
            self._asked_at = now
            self._task = asyncio.create_task(asyncio.to_thread(self._docker.inspect, self._name))
        if self._task is None:
            return
        await asyncio.wait({self._task}, timeout=_PATIENCE_S)
        if self._task.done():
            task, self._task = self._task, None
            self._take(task)

    def _take(self, task: asyncio.Task[ContainerFacts | None]) -> None:
        if isinstance(task.exception(), DockerError):
            return  # Docker not answering says nothing about the container: the last facts stand
        facts = task.result()
        if facts is None:  # somebody removed it
            known = self.facts or ContainerFacts("", self._name, False, None, None, False, {})
            facts = replace(known, running=False, exit_code=None, pid=None)
        self.facts = facts

    def processes(self) -> list[ProcessMark]:
        """The container's processes as they are seen from here (its first one and all below)."""
        if self.facts is None or self.facts.pid is None:
            return []
        alive = all_processes()
        pids = {self.facts.pid} | descendants(self.facts.pid, alive)
        return [alive[pid].mark for pid in pids if pid in alive]
