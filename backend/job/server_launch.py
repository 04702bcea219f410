"""What comes before every start of a server of ours, whether a process or a container: its port is free, it gets an id and a
key, and what proves it later is written down. With what it is started is told by launch_command.py and container_command.py."""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence

from backend.config import EngineConfig
from backend.job import server_log
from backend.job.launch_command import LOOPBACK, Launch, wanted_port
from backend.job.ports import describe_holder, free_port, is_free, refuse_taken_port
from backend.job.process_tree import boot_id
from backend.job.replica import AdoptOutcome, AdoptResult
from backend.job.replica_watch import ReplicaWatch
from backend.job.server_record import ServerRecord, new_api_key, write_launch
from backend.run_dir import RunDir


def choose_launch(engine: EngineConfig, run: RunDir, index: int) -> Launch:
    """A new life of replica `index`. Raises StartRefused where its port is taken."""
    port = wanted_port(engine, index) or free_port()
    # SGLang binds its port only after the model is loaded: a conflict would cost the whole load.
    refuse_taken_port(port)
    return Launch(run, index, secrets.token_hex(8), port, new_api_key())


def write_down(
    launch: Launch, watch: ReplicaWatch, *, command: Sequence[str], files: Mapping[str, str], now: float
) -> ServerRecord:
    """Writes the files (content by suffix) and the record of a life that begins `now`. `command`: redacted. Raises
    StartRefused."""
    record = ServerRecord(
        replica=launch.replica,
        launch=launch.id,
        boot=boot_id(),
        host=LOOPBACK,
        port=launch.port,
        api_key=launch.api_key,
        command=list(command),
        launched_at=now,
        log_offset=server_log.log_bytes(watch.log_path),
        gpu_memory_before_bytes=watch.gpu_memory_used(),
    )
    write_launch(launch.run.servers, record, {launch.file(suffix).name: content for suffix, content in files.items()})
    return record


def foreign_or_nothing(engine: EngineConfig, index: int) -> AdoptResult:
    """Of a replica of which nothing is left: whether somebody else holds its port."""
    port = wanted_port(engine, index)
    if port and not is_free(port):
        return AdoptResult(AdoptOutcome.FOREIGN, f"port {port} is held by {describe_holder(port)}, which is not ours")
    return AdoptResult(AdoptOutcome.NOTHING)
