"""What the machine says about itself, by psutil: processors, memory, the run's disk, and the supervisor's share of it."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import psutil

from backend.telemetry import HostSample

KEY = "host"


class HostReader:
    """Reads the machine and the process it is made in; `run_path` lies on the disk that is watched."""

    def __init__(self, run_path: Path) -> None:
        self._run_path = run_path
        self._process = psutil.Process()
        # psutil measures from call to call: this is where the first interval begins.
        psutil.cpu_percent()
        self._process.cpu_percent()

    def read(self, now: float) -> HostSample:
        """A sample at `now` (epoch seconds). Shares of time are since the last call; a disk that is gone is None."""
        memory = psutil.virtual_memory()
        with self._process.oneshot():
            own_cpu_percent, own_rss_bytes = self._process.cpu_percent(), self._process.memory_info().rss
        try:
            disk = shutil.disk_usage(self._run_path)
        except OSError:
            disk = None
        return HostSample(
            key=KEY,
            at=now,
            cpu_percent=psutil.cpu_percent(),
            load_1m=os.getloadavg()[0],
            # What programs could still get is more than what is free: caches give way.
            memory_used_bytes=memory.total - memory.available,
            memory_total_bytes=memory.total,
            disk_free_bytes=disk.free if disk else None,
            disk_total_bytes=disk.total if disk else None,
            supervisor_cpu_percent=own_cpu_percent,
            supervisor_rss_bytes=own_rss_bytes,
        )
