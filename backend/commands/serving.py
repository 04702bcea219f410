"""Serves an app of ours in a process of its own, on a port that is free, until Ctrl-C. What it says before is the caller's."""

from __future__ import annotations

import errno
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from backend.commands.speaking import complain, say

ROOT: Final = Path(__file__).resolve().parents[2]
PORTS_TRIED: Final = 50
READY_TIMEOUT_S: Final = 60.0
POLL_S: Final = 0.1
END_TIMEOUT_S: Final = 5.0
LOOPBACK: Final = ("127.0.0.1", "localhost", "::1")


@dataclass(frozen=True, slots=True)
class App:
    """What is served: its file below the repository's root, and how it is spoken of."""

    file: str
    name: str  # as a sentence begins: "Headway's dashboard"
    outside: str  # what to know before others than this machine reach it


def serve(app: App, host: str, port: int, environment: Mapping[str, str]) -> int:
    """Serves `app` on `port` or the next free one, until it has ended: 0 after Ctrl-C, 1 where it could not start.

    `environment` is added to this process's own.
    """
    free = free_port(host, port)
    if free is None:
        complain(f"None of the ports {port} to {port + PORTS_TRIED - 1} of {host} can be used.")
        return 1
    if free != port:
        say(f"Port {port} is taken: the next free one is {free}.")
    if host not in LOOPBACK:
        complain(app.outside.format(host=host))
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # a service manager's stop is a Ctrl-C, too
    process = subprocess.Popen(command(app, host, free), cwd=ROOT, env={**os.environ, **environment}, stdout=subprocess.DEVNULL)
    try:
        if not _await_ready(process, host, free):
            complain(f"{app.name} did not start; what is above says why.")
            return 1
        say(f"{app.name}: http://{_shown(host)}:{free}")
        say("Ctrl-C ends it; runs go on.")
        sys.stdout.flush()
        return 0 if process.wait() == 0 else 1
    except KeyboardInterrupt:
        return 0
    finally:
        _end(process)


def command(app: App, host: str, port: int) -> list[str]:
    """The server's command line, to be run in the repository's root."""
    words = [sys.executable, "-m", "streamlit", "run", app.file, "--server.address", host, "--server.port", str(port)]
    # a name of another machine must not reach what is on loopback; elsewhere whoever serves it chose the name
    return words if host in LOOPBACK else [*words, "--server.allowedHosts", "*"]


def free_port(host: str, first: int) -> int | None:
    """`first`, or the next port that can be listened on; None where none of the next ones can, or `host` is not ours."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    for port in range(first, min(first + PORTS_TRIED, 65_536)):
        with socket.socket(family, socket.SOCK_STREAM) as listener:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                listener.bind((host, port))
            except OSError as error:
                if error.errno not in (errno.EADDRINUSE, errno.EACCES):
                    return None
                continue
            return port
    return None


def _await_ready(process: subprocess.Popen[bytes], host: str, port: int) -> bool:
    deadline = time.monotonic() + READY_TIMEOUT_S
    while process.poll() is None and time.monotonic() < deadline:
        try:
            with urllib.request.urlopen(f"http://{_shown(host)}:{port}/_stcore/health", timeout=2):
                return True
        except (urllib.error.URLError, OSError):
            time.sleep(POLL_S)
    return False


def _shown(host: str) -> str:
    """How a browser on this machine reaches it."""
    if host in ("0.0.0.0", "::"):
        return "127.0.0.1"
    return f"[{host}]" if ":" in host else host


def _end(process: subprocess.Popen[bytes]) -> None:
    """Ctrl-C reached it as well; who asked us alone (a signal) has it ended here."""
    if process.poll() is not None:
        return
    process.send_signal(signal.SIGTERM)
    try:
        process.wait(END_TIMEOUT_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
