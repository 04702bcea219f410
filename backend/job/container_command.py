"""What a server in a container is started with: the arguments of `docker run` and the files they name. Pure, but for the look
whether the model is a folder of this machine."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from backend.config import EngineConfig, RunConfig
from backend.config.sglang_flags import split_flags
from backend.job.launch_command import (
    LAUNCH_VARIABLE,
    LOOPBACK,
    REPLICA_VARIABLE,
    RUN_VARIABLE,
    Launch,
    forwarded_variables,
    gpus_of,
    key_file,
    runs_on_cpu,
    server_arguments,
    without_flag,
)
from backend.job.replica import StartRefused

RUN_LABEL: Final = "headway.run"
REPLICA_LABEL: Final = "headway.replica"
LAUNCH_LABEL: Final = "headway.launch"

_KEY_INSIDE: Final = "/headway/server.yaml"


@dataclass(frozen=True, slots=True)
class ContainerCommand:
    """How one life of one server in a container is started."""

    arguments: list[str]  # after `docker run -d`
    env_file: str = field(repr=False)  # content
    yaml: str = field(repr=False)  # content


def container_name(run: str, replica: str, launch: str) -> str:
    """`headway-<run>-<replica>-<launch>`."""
    return f"headway-{run}-{replica}-{launch}"


def publishes_port(engine: EngineConfig) -> bool:
    """Whether Docker holds the port on 127.0.0.1 for the container, so that nobody else can answer there; else the container
    uses the host's network."""
    given = dict(split_flags(engine.docker_args))
    return "host" not in [*given.get("--network", []), *given.get("--net", [])]


def container_command(
    config: RunConfig,
    environ: Mapping[str, str],
    launch: Launch,
) -> ContainerCommand:
    """How a server is started in a container. Raises StartRefused."""
    engine = config.engine
    if not engine.image:
        raise StartRefused("engine.image is not set. Name the image, for example lmsysorg/sglang:v0.5.23.")
    given = dict(split_flags(engine.docker_args))
    run, port = str(launch.run.root), launch.port
    labels = {RUN_LABEL: run, REPLICA_LABEL: launch.replica, LAUNCH_LABEL: launch.id}
    options = [
        "--name",
        container_name(launch.run.name, launch.replica, launch.id),
        "--init",
        "--env-file",
        str(launch.file("env")),
    ]
    for label, value in labels.items():
        options += ["--label", f"{label}={value}"]
    if publishes_port(engine):
        options += ["-p", f"{LOOPBACK}:{port}:{port}"]
    if not {"--ipc", "--shm-size"} & given.keys():
        options += ["--shm-size", "32g"]  # NCCL and SGLang's own queues; Docker's default of 64 MB fails
    if not runs_on_cpu(engine) and not {"--gpus", "--device", "--runtime"} & given.keys():
        gpus = gpus_of(engine, launch.index, environ)
        # Docker reads the value as CSV: a list of devices needs quotes of its own.
        options += ["--gpus", "all" if gpus is None else f'"device={",".join(str(gpu) for gpu in gpus)}"']
    if config.model.path.startswith("/") and Path(config.model.path).is_dir():
        options += ["-v", f"{Path(config.model.path).resolve()}:{config.model.path}:ro"]
    options += ["-v", f"{launch.file('yaml')}:{_KEY_INSIDE}:ro"]
    # Published ports reach a container on its own address only; what is published here is on the loopback address.
    arguments = server_arguments(config, host="0.0.0.0" if publishes_port(engine) else LOOPBACK, port=port)
    inside = [*without_flag(arguments, "--config"), "--config", _KEY_INSIDE]
    command = engine.command or ["python3", "-m", "sglang.launch_server"]
    identity = {RUN_VARIABLE: run, REPLICA_VARIABLE: launch.replica, LAUNCH_VARIABLE: launch.id}
    env_file = _env_file(forwarded_variables(engine, environ) | identity)
    arguments = [*options, *engine.docker_args, engine.image, *command, *inside]
    return ContainerCommand(arguments, env_file, key_file(engine, launch.api_key))


def _env_file(variables: Mapping[str, str]) -> str:
    for name, value in variables.items():
        if "\n" in value:
            raise StartRefused(f"the value of {name} has several lines, which `docker run --env-file` cannot hold.")
    return "".join(f"{name}={value}\n" for name, value in variables.items())
