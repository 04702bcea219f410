"""Whether an interpreter can run SGLang."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import pytest

from backend.job.engine_interpreter import check_interpreter, judge_interpreter, runs_on
from backend.records import Severity

H100 = {"name": "NVIDIA H100", "capability": [9, 0], "memory_bytes": 85 << 30}
GOOD: dict[str, Any] = {
    "python": "3.12.3",
    "sglang": "0.5.23",
    "torch": "2.13.0+cu130",
    "cuda_build": "13.0",
    "devices": [H100, H100],
    "architectures": ["sm_80", "sm_90", "compute_90"],
}


def sentences(told: dict[str, Any], *, gpus_needed: int = 2, on_cpu: bool = False) -> list[str]:
    return [finding.sentence for finding in judge_interpreter("py", told, gpus_needed=gpus_needed, on_cpu=on_cpu)]


def test_a_fitting_environment_gives_no_finding() -> None:
    assert sentences(GOOD) == []


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"sglang": None}, "has no sglang"),
        ({"sglang": "0.4.9"}, "older than what Headway supports (0.5.x)"),
        ({"torch_error": "ImportError: libcudart.so.12"}, "torch cannot be imported by py: ImportError: libcudart.so.12"),
        ({"cuda_build": None}, "is built without CUDA"),
        ({"cuda_error": "RuntimeError: driver too old"}, "CUDA cannot be used by py: RuntimeError: driver too old"),
        ({"devices": [H100]}, "2 GPUs are needed (engine.gpus, engine.replicas, engine.tp), and torch sees 1"),
        ({"architectures": ["sm_100"]}, "GPU 0 (NVIDIA H100) has compute capability 9.0"),
    ],
)
def test_what_is_wrong_is_told(change: dict[str, Any], words: str) -> None:
    assert words in sentences(GOOD | change)[0]


def test_an_unsupported_version_is_only_a_warning() -> None:
    [finding] = judge_interpreter("py", GOOD | {"sglang": "0.6.0"}, gpus_needed=2, on_cpu=False)
    assert finding.severity is Severity.WARNING


def test_a_server_without_gpus_needs_none() -> None:
    assert sentences(GOOD | {"cuda_build": None, "devices": []}, on_cpu=True) == []


@pytest.mark.parametrize(
    ("architectures", "capability", "runs"),
    [
        (["sm_80"], (8, 9), True),  # within a major version, newer
        (["sm_89"], (8, 0), False),
        (["sm_80"], (9, 0), False),
        (["compute_80"], (9, 0), True),  # translated by the driver
        (["sm_90a"], (9, 0), True),
        (["sm_100a"], (10, 3), False),  # code for one architecture only
        (["sm_120"], (12, 0), True),
        ([], (9, 0), False),
        (["gfx942"], (9, 4), False),
    ],
)
def test_machine_code_runs_within_a_major_version(architectures: list[str], capability: tuple[int, int], runs: bool) -> None:
    assert runs_on(architectures, *capability) is runs


def test_an_interpreter_without_sglang_is_found_by_asking_it(tmp_path: Path) -> None:
    findings = check_interpreter(sys.executable, dict(os.environ), gpus_needed=1, on_cpu=False)
    assert "has no sglang" in findings[0].sentence
    assert any("torch cannot be imported" in finding.sentence for finding in findings)


def test_an_interpreter_that_is_not_there_is_told(tmp_path: Path) -> None:
    [finding] = check_interpreter("/nowhere/python", dict(os.environ), gpus_needed=1, on_cpu=False)
    assert finding.severity is Severity.ERROR
    assert "/nowhere/python does not exist" in finding.sentence
    plain = tmp_path / "python"
    plain.touch()
    [finding] = check_interpreter(str(plain), dict(os.environ), gpus_needed=1, on_cpu=False)
    assert "is not executable" in finding.sentence


def test_a_program_that_is_no_python_is_told(tmp_path: Path) -> None:
    fake = tmp_path / "python"
    fake.write_text("#!/bin/sh\necho no python >&2\n")
    fake.chmod(0o755)
    [finding] = check_interpreter(str(fake), dict(os.environ), gpus_needed=1, on_cpu=False)
    assert "is no usable Python (it said: no python)" in finding.sentence


def test_a_slow_interpreter_is_not_waited_for(tmp_path: Path) -> None:
    fake = tmp_path / "python"
    fake.write_text("#!/bin/sh\nexec sleep 60\n")
    fake.chmod(0o755)
    [finding] = check_interpreter(str(fake), dict(os.environ), gpus_needed=1, on_cpu=False, timeout_s=0.2)
    assert finding.severity is Severity.WARNING
    assert "did not tell about itself within" in finding.sentence
