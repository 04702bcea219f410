"""The GPUs of a simulated server as a text file of `key value` lines, for a fake NVML library to read."""

from __future__ import annotations

import asyncio
import os
import time
from pathlib import Path

from backend.simulator.engine import Engine

_INTERVAL_S = 1.0
_IDLE_W, _FULL_W = 90.0, 650.0
_WEIGHTS_GIB, _KV_GIB = 70.0, 55.0


async def write_forever(path: Path, gpus: tuple[int, ...], engine: Engine) -> None:
    """Rewrite the file each second, atomically: a reader never sees half of it."""
    energy_mj, written_at = 0.0, time.monotonic()
    while True:
        now = time.monotonic()
        busy = _load_of(engine)
        power_w = _IDLE_W + (_FULL_W - _IDLE_W) * busy
        energy_mj += power_w * (now - written_at) * 1000
        written_at = now
        write_once(path, gpus, busy=busy, power_w=power_w, energy_mj=energy_mj)
        await asyncio.sleep(_INTERVAL_S)


def file_for(place: str, gpus: tuple[int, ...]) -> Path:
    """The file at `place`; where that is a folder, the one in it of these GPUs, so that servers of equal flags share it."""
    path = Path(place)
    return path / f"gpus-{'-'.join(map(str, gpus))}" if path.is_dir() else path


def _load_of(engine: Engine) -> float:
    """How hard the GPU works, 0-1: part of the curve's top that the present batch reaches."""
    running = engine.scheduler.running_count
    if engine.halted or running == 0:
        return 0.0
    return 0.35 + 0.6 * engine.settings.curve.at(running) / max(engine.settings.curve.tokens_per_s)


def write_once(path: Path, gpus: tuple[int, ...], *, busy: float, power_w: float, energy_mj: float) -> None:
    lines = []
    for index in gpus:
        lines += [
            f"{index}.util {round(100 * busy)}",
            f"{index}.mem_used_gib {_WEIGHTS_GIB + _KV_GIB:.1f}",
            f"{index}.power_w {power_w:.0f}",
            f"{index}.temp {33 + 38 * busy:.0f}",
            f"{index}.energy_mj {energy_mj:.0f}",
        ]
    part = path.with_name(f".{path.name}.{os.getpid()}.part")
    part.write_text("\n".join(lines) + "\n")
    part.replace(path)
