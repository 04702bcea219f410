"""Child processes that look like SGLang's: killable, stoppable, dying with their parent, or on purpose not.

They are plain `sleep` processes under SGLang's names. `ChildWatch` plays the parent's side: a child that dies takes the
server down with SIGKILL (exit code -9), a stopped scheduler stops the engine.
"""

from __future__ import annotations

import asyncio
import ctypes
import os
import shutil
import signal
import socket
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from backend.simulator.server import SimulatedServer

_PR_SET_PDEATHSIG = 1
_POLL_S = 0.2
_CRASH_DELAY_S = 5.0


def _sleeper() -> str:
    path = shutil.which("sleep")
    if path is None:
        raise OSError("no `sleep` on PATH: the simulator's child processes are made of it; start with --no-children")
    return path


def _die_with_parent() -> None:
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


@dataclass(frozen=True, slots=True)
class Child:
    """A child by SGLang's name for it."""

    name: str
    process: subprocess.Popen[bytes]


def start_children(tp_size: int) -> tuple[Child, ...]:
    """One scheduler per tensor-parallel rank and one detokenizer; they die with this thread's process."""
    names = [f"sglang::scheduler_TP{rank}" for rank in range(tp_size)] if tp_size > 1 else ["sglang::scheduler"]
    return tuple(
        Child(
            name,
            subprocess.Popen(
                [name, "infinity"],
                executable=_sleeper(),
                preexec_fn=_die_with_parent,  # noqa: PLW1509 - called before any thread is started
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
            ),
        )
        for name in [*names, "sglang::detokenizer"]
    )


def start_orphan() -> None:
    """A scheduler that was reparented (its parent, a helper, is gone) and outlives this process, in the same session."""
    script = (
        "import subprocess, sys; n = subprocess.DEVNULL; "
        "subprocess.Popen(['sglang::scheduler_TP1', 'infinity'], executable=sys.argv[1], stdin=n, stdout=n, stderr=n)"
    )
    subprocess.run([sys.executable, "-S", "-c", script, _sleeper()], check=True, stdin=subprocess.DEVNULL)


def hold_port(listener: socket.socket) -> None:
    """A child that keeps a listening socket open after this process is gone."""
    subprocess.Popen(
        ["sglang::detokenizer", "infinity"],
        executable=_sleeper(),
        pass_fds=(listener.fileno(),),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )


def kill_children(children: tuple[Child, ...]) -> None:
    for child in children:
        child.process.kill()
    for child in children:
        child.process.wait()


async def watch_children(server: SimulatedServer, children: tuple[Child, ...]) -> None:
    """Until a child dies: then the whole server is killed, as SGLang's watchdog does."""
    while True:
        for child in children:
            code = child.process.poll()
            if code is not None:
                await _go_down(server, children, child, code)
            if "scheduler" in child.name:
                _follow(server, stopped=_is_stopped(child.process.pid))
        await asyncio.sleep(_POLL_S)


def _follow(server: SimulatedServer, *, stopped: bool) -> None:
    if stopped:
        server.engine.halt("child stopped")
    else:
        server.engine.go_on("child stopped")


async def _go_down(server: SimulatedServer, children: tuple[Child, ...], child: Child, code: int) -> None:
    server.engine.halt("child dead")
    server.log.write(
        f"Subprocess {child.name.removeprefix('sglang::')}_0 (pid={child.process.pid}) crashed with exit code {code}. "
        "Triggering SIGQUIT for cleanup..."
    )
    await asyncio.sleep(_CRASH_DELAY_S / server.settings.speed)
    server.log.write("SIGQUIT received. signum=3, frame=None. It usually means one child failed.")
    kill_children(children)
    os.kill(os.getpid(), signal.SIGKILL)


def _is_stopped(pid: int) -> bool:
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return False
    return stat.rpartition(")")[2].split()[0] in ("T", "t")
