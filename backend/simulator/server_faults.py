"""The faults that concern a whole server: what happens when they are switched on and off, and what they do to it."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import sys
import time

from backend.simulator import children
from backend.simulator.engine import Engine
from backend.simulator.faults import Fault, Faults
from backend.simulator.log import Log
from backend.simulator.settings import CAP_WARNING

_DECAY = 14.0


class ServerFaults:
    """Switches faults of one engine and its process; times are real seconds. Use inside the event loop."""

    def __init__(self, faults: Faults, engine: Engine, log: Log) -> None:
        self.faults = faults
        self.listener: socket.socket | None = None
        """The bound socket, for a death that holds the port."""
        self._engine = engine
        self._log = log
        self._requests_seen = 0
        self._die_at = 0
        self._health_bad_until: float | None = None
        self._flood: asyncio.Task[None] | None = None
        engine.on_busy = self._on_busy

    def switch_on(self, fault: Fault) -> None:
        """Activate a fault; those that need it act at once."""
        self.faults.switch_on(fault)
        loop, value = asyncio.get_running_loop(), fault.value
        match fault.name:
            case "hang":
                self._engine.halt("hang")
                if value is not None:
                    loop.call_later(value, self.switch_off, "hang")
            case "health-503-under-load":
                self._health_bad_until = None
                if self._engine.generations:
                    self._on_busy()
            case "die-at-request":
                self._die_at = self._requests_seen + int(value or 1)
            case "orphan-child":
                children.start_orphan()
            case "flood-stdout":
                self._flood = loop.create_task(_flood_stdout(value or 4.0))
            case "decay":
                loop.call_later(value or 0.0, self._engine.slow_down, float(fault.extra or _DECAY))
            case "reset-counters":
                loop.call_later(value or 0.0, self._engine.reset_counters)
            case "gauge-frozen":
                self._engine.reporter.frozen = True
            case "spec-cap-48":
                self._engine.limit_running()
                self._log.write(CAP_WARNING)
            case _:
                pass

    def switch_off(self, name: str) -> None:
        """End a fault, as far as it can be undone."""
        self.faults.switch_off(name)
        match name:
            case "hang":
                self._engine.go_on("hang")
            case "decay":
                self._engine.slow_down(1.0)
            case "gauge-frozen":
                self._engine.reporter.frozen = False
            case "die-at-request":
                self._die_at = 0
            case _:
                pass

    def spoils_health(self) -> bool:
        """Whether health-503-under-load is at work right now."""
        if "health-503-under-load" not in self.faults or self._health_bad_until is None:
            return False
        return time.monotonic() < self._health_bad_until

    def count_request(self) -> None:
        """Called for each generation request; the fatal one ends the process."""
        self._requests_seen += 1
        if self._die_at and self._requests_seen >= self._die_at:
            self._die()

    def _die(self) -> None:
        fault = self.faults.active.get("die-at-request")
        if fault is not None and fault.extra == "hold" and self.listener is not None:
            children.hold_port(self.listener)
        os.kill(os.getpid(), signal.SIGKILL)

    def _on_busy(self) -> None:
        seconds = self.faults.value("health-503-under-load")
        if seconds is not None and self._health_bad_until is None:
            self._health_bad_until = time.monotonic() + seconds


async def _flood_stdout(megabytes: float) -> None:
    """Write until done; blocks the whole server if nobody reads the pipe, as a real one's prints would."""
    line = ("x" * 127 + "\n") * 512
    for _ in range(max(1, round(megabytes * 16))):
        sys.stdout.write(line)
        sys.stdout.flush()
        await asyncio.sleep(0)
