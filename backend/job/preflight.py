"""What can be seen before a start that would make it fail hours later: the interpreter, the model, ports, GPUs, disks, limits.
Each finding is a sentence with its remedy; whether to go on is decided elsewhere."""

from __future__ import annotations

import os
import re
import resource
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

import orjson

from backend.config import EngineConfig, EngineKind, RunConfig
from backend.job.docker_command import Docker, DockerError
from backend.job.engine_interpreter import Finding, check_interpreter, error, warning
from backend.job.gpu import GpuUnavailable, visible_gpus
from backend.job.gpu_use import GpuHold, read_gpu_holds
from backend.job.launch_command import forwarded_variables, gpus_of, inherited_variables, runs_on_cpu, wanted_port
from backend.job.ports import describe_holder, is_free
from backend.job.process_tree import command_line, is_alive
from backend.job.replica import StartRefused
from backend.job.server_record import load_record
from backend.run_dir import RunDir

_GB = 1_000_000_000
_ROOM_GB = 10.0  # below, a warning: answers and logs of a long run need more
_SHM_GB = 1.0
_SMALL_HOLD_BYTES = 1 << 30  # a CUDA context, a monitor
_SPARE_FILES = 256  # besides a connection for each request
_WEIGHTS = ("*.safetensors", "*.bin", "*.gguf", "*.pt", "*.pth")
_HUGGING_FACE_ID = re.compile(r"[\w.-]+(?:/[\w.-]+)?")


# Who holds memory on these GPUs (None: on all visible ones); may raise GpuUnavailable.
GpuHolds = Callable[[Sequence[int | str] | None], Sequence[GpuHold]]


def check(config: RunConfig, run: RunDir, environ: Mapping[str, str], *, gpu_holds: GpuHolds = read_gpu_holds) -> list[Finding]:
    """Everything found, errors first. Takes up to two minutes (the interpreter imports torch): call it in a thread."""
    engine = config.engine
    waiting = [index for index in range(engine.replicas) if not _has_server(run, index)]
    findings = [*_check_room(config, run), *_check_open_files(config)]
    if engine.kind is EngineKind.ATTACHED:
        if engine.api_key_env and not environ.get(engine.api_key_env):
            findings.append(error(f"engine.api_key_env: {engine.api_key_env} is not set in the environment. Export it first."))
        return _sorted(findings)
    findings += _check_ports(engine, waiting)
    try:
        env = inherited_variables(environ) | forwarded_variables(engine, environ)
        gpus = [gpus_of(engine, index, environ) for index in range(engine.replicas)]
    except StartRefused as refused:
        return _sorted([*findings, error(str(refused))])
    if engine.kind is EngineKind.SIMULATED or not waiting:
        return _sorted(findings)
    findings += check_model(config.model.path, in_container=engine.kind is EngineKind.CONTAINER)
    if not runs_on_cpu(engine):
        for index in waiting:
            findings += _check_gpus(gpus[index], environ, gpu_holds)
    if engine.kind is EngineKind.CONTAINER:
        findings += _check_docker(engine)
    elif engine.command:
        if shutil.which(engine.command[0], path=env.get("PATH")) is None:
            findings.append(error(f"engine.command: {engine.command[0]} is not there or not executable. Correct its path."))
    elif engine.python:
        listed = [str(gpu) for chosen in gpus if chosen is not None for gpu in chosen]
        if listed:
            env["CUDA_VISIBLE_DEVICES"] = ",".join(listed)
        needed = max(engine.replicas * engine.tp, len(listed))
        findings += check_interpreter(engine.python, env, gpus_needed=needed, on_cpu=runs_on_cpu(engine))
    return _sorted(findings)


def check_model(path: str, *, in_container: bool = False) -> Iterator[Finding]:
    """Whether the model can be loaded, as far as that is seen without a network."""
    folder = Path(path)
    looks_like_path = path.startswith(("/", "./", "../", "~")) or folder.exists()
    if not looks_like_path:
        if not _HUGGING_FACE_ID.fullmatch(path):
            yield error(f"model.path: {path} is neither a folder here nor of the form of a Hugging Face id (owner/name).")
        return
    if path.startswith("~"):
        yield error(f"model.path: {path}: SGLang does not understand ~. Write {os.path.expanduser(path)}.")
    elif not folder.exists():
        if not in_container:
            yield error(f"model.path: there is no {path}. Correct it, or name a Hugging Face id (owner/name).")
    elif folder.is_dir():
        yield from _check_model_folder(folder)
    elif folder.suffix != ".gguf":
        yield error(f"model.path: {path} is a file. Name the folder that holds config.json and the weights.")


def judge_holds(holds: Sequence[GpuHold]) -> Iterator[Finding]:
    """A sentence for each process that is on a GPU which a replica is to have."""
    for hold in holds:
        who = "a process" if hold.pid is None else f"pid {hold.pid} ({command_line(hold.pid)[:100]})"
        much = "memory" if hold.memory_used_bytes is None else f"{hold.memory_used_bytes / 2**30:.1f} GiB"
        sentence = f"GPU {hold.gpu}: {who} holds {much} there. End it, or choose other GPUs in engine.gpus."
        small = hold.memory_used_bytes is not None and hold.memory_used_bytes < _SMALL_HOLD_BYTES
        yield warning(sentence) if small else error(sentence)


def _check_gpus(gpus: list[int | str] | None, environ: Mapping[str, str], gpu_holds: GpuHolds) -> Iterator[Finding]:
    try:
        yield from judge_holds(gpu_holds(visible_gpus(environ) if gpus is None else gpus))
    except GpuUnavailable as unavailable:
        yield warning(f"{unavailable} Whether the GPUs are free is not known.")


def _has_server(run: RunDir, index: int) -> bool:
    """Whether a former supervisor's server may be alive: it will be taken over, with its port and its GPUs."""
    record = load_record(run.servers, str(index))
    return record is not None and record.main is not None and is_alive(record.main)


def _check_model_folder(folder: Path) -> Iterator[Finding]:
    if not (folder / "config.json").exists():
        yield error(f"model.path: {folder} holds no config.json, so it is no model (or half a download). Download it again.")
    if not any(True for pattern in _WEIGHTS for _ in folder.glob(pattern)):
        yield error(f"model.path: {folder} holds no weights ({', '.join(_WEIGHTS)}). Download it again.")
        return
    index = folder / "model.safetensors.index.json"
    if not index.exists():
        return
    try:
        names = set(orjson.loads(index.read_bytes())["weight_map"].values())
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        yield error(f"model.path: {index} cannot be read. Download it again.")
        return
    missing = sorted(name for name in names if not (folder / name).exists())
    if missing:
        yield error(
            f"model.path: {folder} lacks {len(missing)} of {len(names)} weight files ({missing[0]}, ...). Download them."
        )


def _check_ports(engine: EngineConfig, waiting: Sequence[int]) -> Iterator[Finding]:
    for index in waiting:
        port = wanted_port(engine, index)
        if port > 65535:
            yield error(f"engine.port: replica {index} would need port {port}, above 65535. Choose a lower engine.port, or 0.")
        elif port and not is_free(port):
            yield error(
                f"engine.port: {port} (replica {index}) is held by {describe_holder(port)}. End that process, choose another "
                "port, or 0 for any free one."
            )


def _check_room(config: RunConfig, run: RunDir) -> Iterator[Finding]:
    free_gb = shutil.disk_usage(run.root).free / _GB
    floor_gb = config.driver.disk_floor_gb
    if free_gb < floor_gb:
        yield error(
            f"{run.root}: {free_gb:.1f} GB are free, below driver.disk_floor_gb = {floor_gb:g}: no prompt would be admitted. "
            "Make room."
        )
    elif free_gb < floor_gb + _ROOM_GB:
        yield warning(f"{run.root}: only {free_gb:.1f} GB are free. A long run needs more; make room.")
    shm = Path("/dev/shm")
    if config.engine.kind is EngineKind.LOCAL and shm.is_dir():
        free_gb = shutil.disk_usage(shm).free / _GB
        if free_gb < _SHM_GB:
            yield warning(
                f"/dev/shm: {free_gb:.2f} GB are free, and GPUs talk to each other through it. Remove leftovers there, or give "
                "the container more (--shm-size)."
            )


def _check_open_files(config: RunConfig) -> Iterator[Finding]:
    needed = config.generation.concurrency + _SPARE_FILES
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != resource.RLIM_INFINITY and soft < needed:
        most = "unlimited" if hard == resource.RLIM_INFINITY else str(hard)
        yield error(
            f"ulimit -n is {soft}, and {config.generation.concurrency} requests in flight need {needed} open files. Run "
            f"`ulimit -n {max(needed, 65536)}` first (this user may go up to {most}), or lower generation.concurrency."
        )


def _check_docker(engine: EngineConfig) -> Iterator[Finding]:
    docker = Docker(engine.docker)
    try:
        if engine.image and not docker.has_image(engine.image):
            yield warning(f"engine.image: {engine.image} is not here yet. It is pulled at the start, which may take long.")
    except DockerError as failure:
        yield error(str(failure))


def _sorted(findings: list[Finding]) -> list[Finding]:
    return sorted(findings, key=lambda finding: finding.severity != "error")
