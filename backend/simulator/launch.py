"""Start a simulator as a process of its own and end it for sure: for tests and benches.

with run_simulator("--speed", "50", "--enable-metrics", directory=tmp_path) as simulator:
    requests go to simulator.url
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

_POLL_S = 0.02


class SimulatorStartError(Exception):
    """It ended before it was ready; the message holds the end of its log."""


@dataclass(frozen=True, slots=True)
class SimulatorProcess:
    """A running simulator in a session of its own; its output is in `stdout` and `stderr`."""

    process: subprocess.Popen[bytes]
    port: int
    stdout: Path
    stderr: Path

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def pid(self) -> int:
        return self.process.pid

    def log(self) -> str:
        """What it wrote to stderr: SGLang's log lines."""
        return self.stderr.read_text(errors="replace")

    def children(self) -> dict[str, int]:
        """Names (`sglang::scheduler`, ...) to pids of its child processes."""
        listed = Path(f"/proc/{self.pid}/task/{self.pid}/children").read_text().split()
        names = {pid: Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")[0].decode() for pid in listed}
        return {name: int(pid) for pid, name in names.items()}

    def terminate(self, timeout_s: float = 30.0) -> int:
        """SIGTERM, then the exit code. Raises subprocess.TimeoutExpired."""
        self.process.terminate()
        return self.process.wait(timeout_s)


def start_simulator(
    *flags: str, directory: Path, name: str = "simulator", timeout_s: float = 30.0, env: Mapping[str, str] | None = None
) -> SimulatorProcess:
    """Start one and wait until its port is bound. A `--port` among the flags wins over a free one.

    Raises SimulatorStartError if it ends first or takes longer than `timeout_s`.
    """
    port_file, stdout, stderr = (directory / f"{name}.{ending}" for ending in ("port", "out", "err"))
    port_file.unlink(missing_ok=True)
    command = [sys.executable, "-m", "backend.simulator", "--port", "0", "--port-file", str(port_file), *flags]
    with stdout.open("wb") as out, stderr.open("wb") as err:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=err,
            start_new_session=True,
            cwd=Path(__file__).parents[2],
            env={**os.environ, **(env or {})},
        )
    deadline = time.monotonic() + timeout_s
    while not port_file.exists():
        if process.poll() is not None or time.monotonic() > deadline:
            kill_session(process)
            tail = stderr.read_text(errors="replace")[-2000:]
            raise SimulatorStartError(f"{' '.join(command)}: exit code {process.returncode}\n{tail}")
        time.sleep(_POLL_S)
    return SimulatorProcess(process, int(port_file.read_text()), stdout, stderr)


@contextlib.contextmanager
def run_simulator(
    *flags: str, directory: Path, name: str = "simulator", timeout_s: float = 30.0, env: Mapping[str, str] | None = None
) -> Iterator[SimulatorProcess]:
    """A simulator for the length of a block; afterwards its whole session is gone, orphans included."""
    simulator = start_simulator(*flags, directory=directory, name=name, timeout_s=timeout_s, env=env)
    try:
        yield simulator
    finally:
        kill_session(simulator.process)


def kill_session(process: subprocess.Popen[bytes]) -> None:
    """SIGKILL to the process group and reap the leader; nothing happens if all are gone."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
