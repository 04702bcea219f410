"""Whether the Python named by engine.python can run SGLang on the GPUs asked for: runs engine_probe_script.py with it and
judges what it tells. Judging is pure."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import orjson

from backend.job.sglang_version import Support, supported_version
from backend.records import Severity

PROBE_TIMEOUT_S: Final = 120.0  # torch alone takes a minute to import from a cold network disk

_SCRIPT: Final = Path(__file__).with_name("engine_probe_script.py")
_MARK: Final = "HEADWAY "


@dataclass(frozen=True, slots=True)
class Finding:
    """Something found before a start. ERROR: the start would fail; WARNING: it may go on."""

    severity: Severity
    sentence: str  # what is wrong and what to do


def error(sentence: str) -> Finding:
    """A finding that forbids the start."""
    return Finding(Severity.ERROR, sentence)


def warning(sentence: str) -> Finding:
    """A finding that does not."""
    return Finding(Severity.WARNING, sentence)


def check_interpreter(
    python: str, environ: Mapping[str, str], *, gpus_needed: int, on_cpu: bool, timeout_s: float = PROBE_TIMEOUT_S
) -> list[Finding]:
    """What is wrong with this interpreter. `environ`: the server's, with the GPUs of all replicas visible."""
    found = shutil.which(python, path=environ.get("PATH"))
    if found is None:
        what = "is not executable" if Path(python).exists() else "does not exist"
        return [error(f"engine.python: {python} {what}. Name the Python of the environment in which SGLang is installed.")]
    try:
        done = subprocess.run(
            [found, "-X", "utf8", str(_SCRIPT)],
            env=dict(environ),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=timeout_s,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return [
            warning(
                f"engine.python: {python} did not tell about itself within {timeout_s:.0f} s (it imports torch). "
                "The GPU driver or the disk may be slow; the start is tried all the same."
            )
        ]
    except OSError as failure:
        return [error(f"engine.python: {python} cannot be run: {failure.strerror}. Name a Python interpreter.")]
    lines = [line for line in done.stdout.splitlines() if line.startswith(_MARK)]
    if not lines:
        said = (done.stderr.strip().splitlines() or ["nothing"])[-1][:300]
        return [error(f"engine.python: {python} is no usable Python (it said: {said}). Name one from 3.10 on.")]
    return list(judge_interpreter(python, orjson.loads(lines[-1][len(_MARK) :]), gpus_needed=gpus_needed, on_cpu=on_cpu))


def judge_interpreter(python: str, told: Mapping[str, Any], *, gpus_needed: int, on_cpu: bool) -> Iterator[Finding]:
    """What is wrong, from what the probe script told."""
    if told.get("sglang") is None:
        yield error(
            f"engine.python: {python} has no sglang. Install it there (see requirements-gpu.txt), or name the Python of the "
            "environment that has it."
        )
    elif (verdict := supported_version(told["sglang"])).support is not Support.FULL:
        yield warning(verdict.sentence)
    if told.get("torch_error") is not None:
        yield error(f"torch cannot be imported by {python}: {told['torch_error']}. Repair or reinstall that environment.")
        return
    if on_cpu:
        return
    devices: Sequence[Mapping[str, Any]] = told.get("devices") or []
    if told.get("cuda_build") is None:
        yield error(
            f"torch {told.get('torch')} of {python} is built without CUDA. Install a CUDA build (requirements-gpu.txt)."
        )
    elif told.get("cuda_error") is not None:
        yield error(f"CUDA cannot be used by {python}: {told['cuda_error']}. Check nvidia-smi and the driver's version.")
    elif len(devices) < gpus_needed:
        yield error(
            f"{gpus_needed} GPUs are needed (engine.gpus, engine.replicas, engine.tp), and torch sees {len(devices)}. "
            "Compare with nvidia-smi and CUDA_VISIBLE_DEVICES."
        )
    for index, device in enumerate(devices):
        major, minor = device["capability"]
        if not runs_on(told.get("architectures") or [], major, minor):
            yield error(
                f"GPU {index} ({device['name']}) has compute capability {major}.{minor}, and torch {told.get('torch')} was "
                f"built for {', '.join(told.get('architectures') or ['none'])}. Install a build of torch for this GPU."
            )


def runs_on(architectures: Sequence[str], major: int, minor: int) -> bool:
    """Whether code built for these (`sm_90`, `sm_90a`, `compute_90`) runs on a GPU of this compute capability: machine code
    within one major version, from its minor version up; intermediate code on everything newer."""
    for architecture in architectures:
        match = re.fullmatch(r"(sm|compute)_(\d+)(\d)([a-z]?)", architecture)
        if match is None:
            continue
        kind, built_major, built_minor, special = match[1], int(match[2]), int(match[3]), match[4]
        exact = (built_major, built_minor) == (major, minor)
        same_major = kind == "sm" and built_major == major and built_minor <= minor and not special
        older_source = kind == "compute" and (built_major, built_minor) <= (major, minor) and not special
        if exact or same_major or older_source:
            return True
    return False
