"""Which containers are ours: found by their labels, proven by the record, ended and removed. Blocks while Docker works."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from backend.job.container_command import LAUNCH_LABEL, REPLICA_LABEL, RUN_LABEL
from backend.job.docker_command import ContainerFacts, Docker
from backend.job.identity import check_key
from backend.job.server_record import ServerRecord

_KILLED = 137


@dataclass(frozen=True, slots=True)
class EndedContainers:
    """What ending the containers of a replica came to."""

    killed: int
    exit_code: int | None  # of the last one


def own_containers(docker: Docker, run: Path, replica: str) -> list[ContainerFacts]:
    """All containers of this run and replica, ended ones too. Raises DockerError."""
    of_replica = set(docker.ids_with_label(f"{REPLICA_LABEL}={replica}"))
    ids = [ident for ident in docker.ids_with_label(f"{RUN_LABEL}={run}") if ident in of_replica]
    return [facts for ident in ids if (facts := docker.inspect(ident)) is not None]


def proven_container(record: ServerRecord, containers: list[ContainerFacts]) -> tuple[ContainerFacts | None, str]:
    """The container of the record, if it is of use, and why it is kept or not."""
    ours = [facts for facts in containers if facts.labels.get(LAUNCH_LABEL) == record.launch]
    if not ours:
        return None, "the container of the last start is gone"
    facts = ours[0]
    if not facts.running:
        return None, f"container {facts.name} had ended"
    if record.container not in (None, facts.id):
        return None, f"container {facts.name} has another id than its record"
    if check_key(record) is False:
        return None, f"the server in container {facts.name} does not know the API key of its record"
    return facts, f"container {facts.name} runs"


def end_containers(docker: Docker, run: Path, replica: str, deadline_s: float) -> EndedContainers:
    """Stops and removes every container of this replica. Raises DockerError."""
    killed, exit_code = 0, None
    for container in own_containers(docker, run, replica):
        facts: ContainerFacts | None = container
        if container.running:
            docker.stop(container.id, deadline_s)
            facts = docker.inspect(container.id)
            if facts is not None and facts.running:
                docker.kill(container.id)
                facts = docker.inspect(container.id)
            killed += facts is not None and facts.exit_code == _KILLED
        exit_code = facts.exit_code if facts is not None else exit_code
        docker.remove(container.id)
    return EndedContainers(killed, exit_code)
