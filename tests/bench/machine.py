"""Which machine and which commit the figures are of."""

from __future__ import annotations

import os
import platform
import subprocess
from pathlib import Path

import psutil

ROOT = Path(__file__).parents[2]


def machine_lines() -> list[str]:
    """CPU, cores, memory, kernel, Python, load and commit, a line each."""
    load = ", ".join(f"{value:.1f}" for value in os.getloadavg())
    return [
        f"machine  {_cpu_model()}, {len(os.sched_getaffinity(0))} cores, {psutil.virtual_memory().total / 1e9:.0f} GB memory",
        f"system   {platform.system()} {platform.release()}, Python {platform.python_version()}",
        f"load     {load} (1, 5, 15 minutes; what others run here lowers the figures)",
        f"commit   {_commit()}",
    ]


def _cpu_model() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.machine()


def _commit() -> str:
    def git(*words: str) -> str:
        return subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True, check=False).stdout.strip()

    commit = git("rev-parse", "--short=12", "HEAD")
    if not commit:
        return "unknown (no git checkout)"
    return commit + (" with uncommitted changes" if git("status", "--porcelain") else "")
