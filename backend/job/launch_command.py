"""What a server is started with: argv, environment and the YAML file that carries its API key (argv is visible in `ps`).

Pure, except that a configuration file named in `engine.args` is read, because SGLang takes only one.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from backend.config import EngineConfig, EngineKind, RunConfig
from backend.job.replica import StartRefused

RUN_VARIABLE: Final = "HEADWAY_RUN"
REPLICA_VARIABLE: Final = "HEADWAY_REPLICA"
LAUNCH_VARIABLE: Final = "HEADWAY_LAUNCH"

_PROJECT_ROOT: Final = Path(__file__).resolve().parents[2]
_KEY_FLAGS: Final = ("--api-key", "--admin-api-key")
_SECRET_FLAG: Final = re.compile(r"(?:key|token|password|secret)$", re.IGNORECASE)
# SGLang's own limit of 300 s for one forward pass kills it while kernels are compiled for the first time; Headway has its
# own stall rule.
_WATCHDOG_S: Final = 1800


@dataclass(frozen=True, slots=True)
class LaunchCommand:
    """How one life of one server is started."""

    argv: list[str]
    environ: dict[str, str] = field(repr=False)
    yaml: str | None = field(repr=False)  # content of the configuration file that argv names
    host: str  # where to reach it
    port: int

    @property
    def redacted(self) -> list[str]:
        """argv as it may be shown."""
        return redact(self.argv)


def flag_value(args: Sequence[str], *names: str) -> str | None:
    """The value of the first of these flags, as `--flag value` or `--flag=value`; "" for a bare one; None if not there."""
    for position, arg in enumerate(args):
        name, equals, value = arg.partition("=")
        if name not in names:
            continue
        if equals:
            return value
        following = args[position + 1] if position + 1 < len(args) else ""
        return "" if following.startswith("--") else following
    return None


def has_flag(args: Sequence[str], *names: str) -> bool:
    """Whether one of these flags is given."""
    return flag_value(args, *names) is not None


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


def takes_key(engine: EngineConfig) -> bool:
    """SGLang supports no API key together with several tokenizer processes."""
    workers = flag_value(engine.args, "--tokenizer-worker-num") or "1"
    return not (workers.isdigit() and int(workers) > 1)


def gpus_of(engine: EngineConfig, index: int, environ: Mapping[str, str]) -> list[int | str] | None:
    """The GPUs of replica `index`: disjoint slices. None: no choice is made, the server sees what Headway sees.

    Raises StartRefused when there are too few.
    """
    everything: list[int | str] | None = engine.gpus
    if everything is None:
        visible = [item.strip() for item in environ.get("CUDA_VISIBLE_DEVICES", "").split(",") if item.strip()]
        if engine.replicas == 1 or flag_value(engine.args, "--device") == "cpu" or engine.kind is EngineKind.SIMULATED:
            return None
        everything = list(visible) if visible else list(range(engine.replicas * engine.tp))
    share = max(len(everything) // engine.replicas, engine.tp)
    if share * engine.replicas > len(everything):
        raise StartRefused(
            f"engine.gpus lists {len(everything)} GPUs, but {engine.replicas} replicas of tp {engine.tp} need "
            f"{engine.replicas * engine.tp}. List more GPUs, or lower engine.replicas or engine.tp."
        )
    return everything[index * share : (index + 1) * share]


def server_arguments(config: RunConfig, *, host: str, port: int) -> list[str]:
    """SGLang's arguments: `engine.args` as they stand, and what Headway needs unless it is given there."""
    engine, given = config.engine, config.engine.args
    added: list[str] = []

    def add(flag: str, value: str | None, *other_spellings: str) -> None:
        if not has_flag(given, flag, *other_spellings):
            added.extend([flag] if value is None else [flag, value])

    add("--model-path", config.model.path, "--model")
    if config.model.served_name is not None:
        add("--served-model-name", config.model.served_name)
    add("--host", host)
    add("--port", str(port))
    if engine.tp > 1:
        add("--tp-size", str(engine.tp), "--tp", "--tensor-parallel-size")
    add("--enable-metrics", None)
    add("--enable-cache-report", None)
    add("--watchdog-timeout", str(_WATCHDOG_S))
    return added + list(given)


def server_environment(
    config: RunConfig, environ: Mapping[str, str], *, run: str, replica: str, launch: str, gpus: Sequence[int | str] | None
) -> dict[str, str]:
    """The environment of a server. Raises StartRefused when a variable of engine.env_from is not set."""
    # Inherited, it would make the server's counters survive its restart and mix those of several servers.
    env = {name: value for name, value in environ.items() if name != "PROMETHEUS_MULTIPROC_DIR"}
    env |= forwarded_variables(config.engine, environ)
    if gpus is not None:
        env["CUDA_VISIBLE_DEVICES"] = ",".join(str(gpu) for gpu in gpus)
        env.setdefault("CUDA_DEVICE_ORDER", "PCI_BUS_ID")  # so that numbers mean what nvidia-smi means by them
    if config.engine.kind is EngineKind.SIMULATED:
        env["PYTHONPATH"] = _search_path(str(_PROJECT_ROOT), env.get("PYTHONPATH"))
    return env | {RUN_VARIABLE: run, REPLICA_VARIABLE: replica, LAUNCH_VARIABLE: launch}


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
    named = flag_value(engine.args, "--config")
    if named is None:
        return line
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
        if Path(engine.command[0]).name in ("docker", "podman", "nerdctl") or engine.command[:2] == ["sudo", "docker"]:
            raise StartRefused(
                "engine.command starts a container: Headway could neither prove that it is its own nor stop it. "
                'Use engine.kind = "container" with engine.image (and engine.docker_args for more options).'
            )
        return list(engine.command)
    if engine.kind is EngineKind.SIMULATED:
        return [sys.executable, "-m", "backend.simulator"]
    if engine.python is None:
        raise StartRefused("engine.python is not set. Name the Python that has sglang, for example /opt/sglang/bin/python.")
    return [engine.python, "-m", "sglang.launch_server"]


def refuse_keys_in_arguments(engine: EngineConfig) -> None:
    """Raises StartRefused when engine.args hold an API key: everybody on the machine could read it in `ps`."""
    for flag in _KEY_FLAGS:
        if has_flag(engine.args, flag):
            raise StartRefused(
                f"engine.args holds {flag}: everybody on this machine could read it in `ps`, and Headway makes a key of "
                f"its own for each start. Take it out."
            )


def wanted_port(engine: EngineConfig, index: int) -> int:
    """The port of replica `index`; 0: any free one. Raises StartRefused when several replicas would share one."""
    given = flag_value(engine.args, "--port")
    if given is None:
        return engine.port + index if engine.port else 0
    if not given.isdigit():
        raise StartRefused(f"engine.args holds --port {given}, which is no number. Set engine.port instead.")
    if engine.replicas > 1:
        raise StartRefused("engine.args holds --port, which all replicas would share. Set engine.port instead.")
    return int(given)


def local_command(
    config: RunConfig,
    environ: Mapping[str, str],
    *,
    run: str,
    replica: str,
    index: int,
    launch: str,
    port: int,
    api_key: str | None,
    key_path: Path,
) -> LaunchCommand:
    """How replica `index` is started as a process of this machine. Raises StartRefused."""
    engine = config.engine
    refuse_keys_in_arguments(engine)
    host = flag_value(engine.args, "--host") or "127.0.0.1"
    gpus = gpus_of(engine, index, environ)
    env = server_environment(config, environ, run=run, replica=replica, launch=launch, gpus=gpus)
    argv = base_command(engine) + server_arguments(config, host=host, port=port)
    yaml = None
    if api_key is not None:
        yaml = key_file(engine, api_key)
        argv = [*without_flag(argv, "--config"), "--config", str(key_path)]
    reachable = "127.0.0.1" if host in ("0.0.0.0", "::", "localhost") else host
    return LaunchCommand(argv, env, yaml, reachable, port)
