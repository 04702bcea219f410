"""The dashboard as a process of its own on a free port, with a folder of runs of its own."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path
from urllib.parse import urlencode

ROOT = Path(__file__).resolve().parents[2]
START_TIMEOUT_S = 60.0  # it imports for seconds on a busy machine
PAGES = ("", "forecast", "compare", "datasets", "data", "engine", "gpus", "events", "runs", "new-run")
"""Every page by its address; Overview is the one without a name."""


class Dashboard:
    """One dashboard. `kill` and `start` may follow each other: the port stays."""

    def __init__(self, runs: Path, log: Path) -> None:
        self.runs, self.log = runs, log
        self.port = free_port()
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def start(self) -> None:
        """Starts it and waits until it answers."""
        command = [sys.executable, "-m", "backend", "dashboard", "--port", str(self.port)]
        with self.log.open("ab") as output:
            self._process = subprocess.Popen(
                command,
                cwd=ROOT,
                env={**os.environ, "HEADWAY_RUNS": str(self.runs)},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
            )
        deadline = time.monotonic() + START_TIMEOUT_S
        while not self._answers():
            assert self._process.poll() is None, self.log.read_text()
            assert time.monotonic() < deadline, f"no answer\n{self.log.read_text()}"
            time.sleep(0.1)

    def kill(self) -> None:
        """SIGKILL to it and what it started for itself (not to supervisors: they have sessions of their own)."""
        if self._process is not None and self._process.poll() is None:
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait(timeout=10)

    def url(self, page: str = "", run: str | None = None) -> str:
        """The address of a page, of a run."""
        return f"http://127.0.0.1:{self.port}/{page}" + (f"?{urlencode({'run': run})}" if run else "")

    def _answers(self) -> bool:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/_stcore/health", timeout=2) as response:
                return bool(response.status == 200)
        except (urllib.error.URLError, OSError):
            return False


def free_port() -> int:
    """A TCP port of 127.0.0.1 that nobody listens on at the moment."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
