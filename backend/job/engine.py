"""What an engine is: one replica or several, of the kind that the run's configuration names. The words are in replica.py."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from backend.config import EngineKind, RunConfig
from backend.job.attached import AttachedServer
from backend.job.container import ContainerServer
from backend.job.gpu_use import GpuMemory
from backend.job.launch_command import runs_on_cpu
from backend.job.replica import (
    AbortFailed,
    AdoptOutcome,
    AdoptResult,
    Endpoint,
    GpuMemoryUsed,
    Replica,
    ReplicaObservation,
    ReplicaPhase,
    StartRefused,
    StopReport,
)
from backend.job.server import ServerProcess
from backend.run_dir import RunDir

__all__ = [
    "AbortFailed",
    "AdoptOutcome",
    "AdoptResult",
    "Endpoint",
    "GpuMemoryUsed",
    "Replica",
    "ReplicaObservation",
    "ReplicaPhase",
    "StartRefused",
    "StopReport",
    "build_replicas",
]


def build_replicas(
    config: RunConfig, run: RunDir, environ: Mapping[str, str], *, gpu_memory_used: GpuMemoryUsed | None = None
) -> list[Replica]:
    """The replicas of a run's engine, not started yet. `gpu_memory_used(gpus)`: bytes in use there; default: as NVML tells."""
    engine = config.engine
    if engine.kind is EngineKind.ATTACHED:
        return [AttachedServer(config, environ, index) for index in range(len(engine.urls))]
    if gpu_memory_used is None:
        without_gpus = engine.kind is EngineKind.SIMULATED or runs_on_cpu(engine)
        gpu_memory_used = unknown_gpu_memory if without_gpus else GpuMemory(environ).used_bytes
    if engine.kind is EngineKind.CONTAINER:
        return [ContainerServer(config, run, environ, index, gpu_memory_used) for index in range(engine.replicas)]
    return [ServerProcess(config, run, environ, index, gpu_memory_used) for index in range(engine.replicas)]


def unknown_gpu_memory(gpus: Sequence[int | str] | None) -> int | None:
    """For servers that use no GPU."""
    return None
