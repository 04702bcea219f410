"""TCP ports of this machine: a free one, whether one is free, and who holds it."""

from __future__ import annotations

import errno
import socket

from backend.job.process_tree import all_processes, command_line, holders, listening_inodes
from backend.job.replica import StartRefused


def free_port(host: str = "127.0.0.1") -> int:
    """A port nobody listens on at this moment."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.bind((host, 0))
        port: int = probe.getsockname()[1]
        return port


def is_free(port: int, host: str = "127.0.0.1") -> bool:
    """Whether a server could listen on it (connections of a former one that linger in TIME_WAIT do not hinder it)."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError as error:
            if error.errno in (errno.EADDRINUSE, errno.EACCES):
                return False
            raise
    return not listening_inodes(port)


def describe_holder(port: int) -> str:
    """Who listens on `port`, in words: `pid 123 (python -m http.server)`."""
    pids = sorted(holders(listening_inodes(port), all_processes()))
    if not pids:
        return "a process that cannot be seen from here, or this user may not use it"
    return ", ".join(f"pid {pid} ({command_line(pid)[:120]})" for pid in pids[:3])


def refuse_taken_port(port: int) -> None:
    """Raises StartRefused, naming who holds it, when a port is not free."""
    if not is_free(port):
        raise StartRefused(
            f"port {port} is held by {describe_holder(port)}. End that process, or set engine.port to a free port "
            "(0 lets Headway choose one)."
        )
