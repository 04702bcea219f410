"""What a server is started with: argv, environment and the YAML file that carries its API key (argv is visible in `ps`).

Pure, except that a configuration file named in `engine.args` is read, because SGLang takes only one.
"""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from backend.config import EngineConfig, EngineKind, RunConfig
from backend.config.sglang_flags import split_flags
from backend.job.replica import StartRefused
from backend.run_dir import RunDir

RUN_VARIABLE: Final = "HEADWAY_RUN"
REPLICA_VARIABLE: Final = "HEADWAY_REPLICA"
LAUNCH_VARIABLE: Final = "HEADWAY_LAUNCH"

LOOPBACK: Final = "127.0.0.1"

_PROJECT_ROOT: Final = Path(__file__).resolve().parents[2]
_SECRET_FLAG: Final = re.compile(r"(?:key|token|password|secret)$", re.IGNORECASE)
# SGLang's own limit of 300 s for one forward pass kills it while kernels are compiled for the first time; Headway has its
# own stall rule.
_WATCHDOG_S: Final = 1800


@dataclass(frozen=True, slots=True)
class Launch:
    """What one life of one server is to be."""

    run: RunDir
    index: int  # of the replica
    id: str  # random; also in the server's environment, or a label of its container
    port: int
    api_key: str = field(repr=False)

    @property
    def replica(self) -> str:
        """Its name."""
        return str(self.index)

    def file(self, suffix: str) -> Path:
        """The file that it is started with: `yaml`, or `env` as well."""
        return self.run.servers / f"{self.replica}.{suffix}"


@dataclass(frozen=True, slots=True)
class LaunchCommand:
    """How one life of one server is started."""

    argv: list[str]
    environ: dict[str, str] = field(repr=False)
    yaml: str = field(repr=False)  # content of the configuration file that argv names

    @property
    def redacted(self) -> list[str]:
        """argv as it may be shown."""
        return redact(self.argv)


def redact(argv: Sequence[str]) -> list[str]:
    """The same command with the values of flags that end in key, token, password or secret replaced by ***."""
    shown: list[str] = []
    hide_next = False
    for arg in argv:
        name, equals, _ = arg.partition("=")
        secret = name.startswith("--") and _SECRET_FLAG.search(name) is not None
        shown.append("***" if hide_next else f"{name}=***" if secret and equals else arg)
        hide_next = secret and not equals
    return shown


def runs_on_cpu(engine: EngineConfig) -> bool:
    """Whether engine.args ask for a server without GPUs."""
    return dict(split_flags(engine.args)).get("--device") == ["cpu"]


def gpus_of(engine: EngineConfig, index: int, environ: Mapping[str, str]) -> list[int | str] | None:
    """The GPUs of replica `index`: disjoint slices. None: no choice is made, the server sees what Headway sees.

    Raises StartRefused when there are too few.
    """
    everything: list[int | str] | None = engine.gpus
    if everything is None:
        visible = [item.strip() for item in environ.get("CUDA_VISIBLE_DEVICES", "").split(",") if item.strip()]
        if engine.replicas == 1 or runs_on_cpu(engine):
            return None
        everything = list(visible) if visible else list(range(engine.replicas * engine.tp))
    share = max(len(everything) // engine.replicas, engine.tp)
    if share * engine.replicas > len(everything):
        raise StartRefused(
            f"{len(everything)} GPUs are given (engine.gpus, CUDA_VISIBLE_DEVICES), and {engine.replicas} replicas of tp "
            f"{engine.tp} need {engine.replicas * engine.tp}. Give more, or lower engine.replicas or engine.tp."
        )
    return everything[index * share : (index + 1) * share]


def server_arguments(config: RunConfig, *, host: str, port: int) -> list[str]:
    """SGLang's arguments: `engine.args` as they stand, then what Headway needs (the later of two counts)."""
    engine = config.engine
    needed = ["--model-path", config.model.path, "--host", host, "--port", str(port)]
    if config.model.served_name is not None:
        needed += ["--served-model-name", config.model.served_name]
    if engine.tp > 1:
        needed += ["--tp-size", str(engine.tp)]
    needed += ["--enable-metrics", "--enable-cache-report"]
    if "--watchdog-timeout" not in dict(split_flags(engine.args)):
        needed += ["--watchdog-timeout", str(_WATCHDOG_S)]
    return [*engine.args, *needed]


def server_environment(
    config: RunConfig, environ: Mapping[str, str], *, run: str, replica: str, launch: str, gpus: Sequence[int | str] | None
) -> dict[str, str]:
    """The environment of a server. Raises StartRefused when a variable of engine.env_from is not set."""
    env = inherited_variables(environ) | forwarded_variables(config.engine, environ)
    if gpus is not None:
        env["CUDA_VISIBLE_DEVICES"] = ",".join(str(gpu) for gpu in gpus)
        env.setdefault("CUDA_DEVICE_ORDER", "PCI_BUS_ID")  # so that numbers mean what nvidia-smi means by them
    if config.engine.kind is EngineKind.SIMULATED:
        env["PYTHONPATH"] = _search_path(str(_PROJECT_ROOT), env.get("PYTHONPATH"))
    return env | {RUN_VARIABLE: run, REPLICA_VARIABLE: replica, LAUNCH_VARIABLE: launch}


def inherited_variables(environ: Mapping[str, str]) -> dict[str, str]:
    """What a process that is not ours may take over of the supervisor's environment."""
    # Inherited, it would make the server's counters survive its restart and mix those of several servers.
    env = {name: value for name, value in environ.items() if name != "PROMETHEUS_MULTIPROC_DIR"}
    # The supervisor finds Headway by PYTHONPATH; another interpreter would find our modules in place of its own.
    paths = [path for path in env.pop("PYTHONPATH", "").split(os.pathsep) if path and Path(path) != _PROJECT_ROOT]
    return env | ({"PYTHONPATH": os.pathsep.join(paths)} if paths else {})


def forwarded_variables(engine: EngineConfig, environ: Mapping[str, str]) -> dict[str, str]:
    """engine.env, and the values of what engine.env_from names. Raises StartRefused when one is not set."""
    missing = [name for name in engine.env_from if name not in environ]
    if missing:
        raise StartRefused(
            f"engine.env_from names {', '.join(missing)}, which is not set in the environment of `python -m backend start`. "
            f"Export it there, or take it out of engine.env_from."
        )
    return dict(engine.env) | {name: environ[name] for name in engine.env_from}


def _search_path(first: str, rest: str | None) -> str:
    """PYTHONPATH with `first` in front."""
    return f"{first}:{rest}" if rest else first


def key_file(engine: EngineConfig, api_key: str) -> str:
    """Content of the `--config` file: the key, after what a configuration file named in engine.args holds.

    Raises StartRefused when that file cannot be joined with the key.
    """
    line = f"api-key: {json.dumps(api_key)}\n"
    given = dict(split_flags(engine.args)).get("--config")
    if not given:
        return line
    named = given[0]
    try:
        text = Path(named).read_text()
    except OSError as error:
        raise StartRefused(f"engine.args names --config {named}, which cannot be read: {error.strerror}.") from error
    if re.search(r"^\s*(?:admin[-_])?api[-_]key\s*:", text, re.MULTILINE):
        raise StartRefused(f"{named} holds an API key. Take it out: Headway makes a new one for each start of a server.")
    if text.lstrip().startswith("{"):
        raise StartRefused(f"{named} is one {{...}} mapping. Write one `key: value` a line: Headway adds a line of its own.")
    return text.rstrip("\n") + "\n" + line


def without_flag(args: Sequence[str], name: str) -> list[str]:
    """`args` without this flag and its value."""
    kept: list[str] = []
    skip = False
    for arg in args:
        if skip:
            skip = False
        elif arg == name:
            skip = True
        elif not arg.startswith(f"{name}="):
            kept.append(arg)
    return kept


def base_command(engine: EngineConfig) -> list[str]:
    """What precedes SGLang's arguments. Raises StartRefused."""
    if engine.command:
        return list(engine.command)
    if engine.kind is EngineKind.SIMULATED:
        return [sys.executable, "-m", "backend.simulator"]
    if engine.python is None:
        raise StartRefused("engine.python is not set. Name the Python that has sglang, for example /opt/sglang/bin/python.")
    return [engine.python, "-m", "sglang.launch_server"]


def wanted_port(engine: EngineConfig, index: int) -> int:
    """The port of replica `index`; 0: any free one."""
    return engine.port + index if engine.port else 0


def local_command(config: RunConfig, environ: Mapping[str, str], launch: Launch) -> LaunchCommand:
    """How a server is started as a process of this machine. Raises StartRefused."""
    engine = config.engine
    gpus = gpus_of(engine, launch.index, environ)
    env = server_environment(config, environ, run=str(launch.run.root), replica=launch.replica, launch=launch.id, gpus=gpus)
    arguments = without_flag(server_arguments(config, host=LOOPBACK, port=launch.port), "--config")
    argv = [*base_command(engine), *arguments, "--config", str(launch.file("yaml"))]
    return LaunchCommand(argv, env, key_file(engine, launch.api_key))
