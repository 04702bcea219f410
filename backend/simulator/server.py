"""One simulated server: routes, faults that concern all of it, start and stop inside an event loop.

The process around it (load, children, signals) is __main__.py's.
"""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import sys
import time
from types import TracebackType
from typing import Self

from aiohttp import web
from aiohttp.typedefs import Handler, Middleware

from backend.simulator import children
from backend.simulator.auth import is_allowed
from backend.simulator.control_endpoints import ControlEndpoints
from backend.simulator.engine import Engine
from backend.simulator.faults import Fault, Faults, parse_fault
from backend.simulator.generation_endpoints import GenerationEndpoints
from backend.simulator.info_endpoints import InfoEndpoints
from backend.simulator.log import Log
from backend.simulator.rate_limits import RateLimits
from backend.simulator.settings import CAP_WARNING, Profile, Settings

_DECAY = 14.0
_MAX_BODY_BYTES = 256 * 2**20
_DRAIN_POLL_S = 5.0


class SimulatedServer:
    """A server in this event loop: `async with SimulatedServer(settings) as server: ... server.url`.

    `port=0` takes a free port. Raises OSError if the port is in use.
    """

    def __init__(self, settings: Settings, *, log: Log | None = None) -> None:
        self.settings = settings
        self.log = log or Log(enabled=False, access=False)
        self.faults = Faults(settings.random_seed)
        self.limits: RateLimits | None = None
        if settings.profile is Profile.API:
            self.limits = RateLimits(settings.requests_per_minute, settings.tokens_per_minute, settings.speed)
        self.pid = os.getpid()
        self.exiting = False
        self.up = True
        self.port = settings.port
        self.engine: Engine
        self._requests_seen = 0
        self._die_at = 0
        self._health_bad_until: float | None = None
        self._runner: web.AppRunner | None = None
        self._socket: socket.socket | None = None
        self._flood: asyncio.Task[None] | None = None

    # ---- life

    @property
    def url(self) -> str:
        return f"http://{self.settings.host}:{self.port}"

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.stop()

    async def start(self) -> None:
        """Bind the port and answer. Raises OSError."""
        app = create_app(self.settings, server=self)
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=1.0)
        await self._runner.setup()
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            self._socket.bind((self.settings.host, self.settings.port))
        except OSError:
            self._socket.close()
            await self._runner.cleanup()
            raise
        self._socket.setblocking(False)
        self.port = int(self._socket.getsockname()[1])
        await web.SockSite(self._runner, self._socket, backlog=2048).start()

    async def stop(self) -> None:
        if self._runner is not None:
            await self._runner.cleanup()

    async def drain(self) -> None:
        """SIGTERM: health is 503 at once, requests in flight finish (new ones are still taken), then return."""
        self.exiting = True
        while True:
            await asyncio.sleep(max(_DRAIN_POLL_S / self.settings.speed, 0.02))
            rids = list(self.engine.generations)
            self.log.write(
                f"Gracefully exiting... Remaining number of requests {len(rids)}. Remaining requests remaining_rids={rids}."
            )
            if not rids:
                return

    def open_engine(self) -> None:
        """Create the engine in the running loop and switch on the faults of the settings."""
        self.engine = Engine(self.settings, self.log)
        self.engine.on_busy = self._on_busy
        for name, argument in self.settings.faults:
            self.switch_fault_on(parse_fault(name, argument))

    # ---- faults of the whole server

    def switch_fault_on(self, fault: Fault) -> None:
        """Activate a fault; those that need it act at once."""
        self.faults.switch_on(fault)
        loop, value = asyncio.get_running_loop(), fault.value
        match fault.name:
            case "hang":
                self.engine.halt("hang")
                if value is not None:
                    loop.call_later(value, self.switch_fault_off, "hang")
            case "health-503-under-load":
                self._health_bad_until = None
                if self.engine.generations:
                    self._on_busy()
            case "die-at-request":
                self._die_at = self._requests_seen + int(value or 1)
            case "orphan-child":
                children.start_orphan()
            case "flood-stdout":
                self._flood = loop.create_task(_flood_stdout(value or 4.0))
            case "decay":
                loop.call_later(value or 0.0, self.engine.slow_down, float(fault.extra or _DECAY))
            case "reset-counters":
                loop.call_later(value or 0.0, self.engine.reset_counters)
            case "gauge-frozen":
                self.engine.gauges_frozen = True
            case "spec-cap-48":
                self.engine.limit_running()
                self.log.write(CAP_WARNING)
            case _:
                pass

    def switch_fault_off(self, name: str) -> None:
        """End a fault, as far as it can be undone."""
        self.faults.switch_off(name)
        match name:
            case "hang":
                self.engine.go_on("hang")
            case "decay":
                self.engine.slow_down(1.0)
            case "gauge-frozen":
                self.engine.gauges_frozen = False
            case "die-at-request":
                self._die_at = 0
            case _:
                pass

    def faulty_health(self) -> bool:
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
        if fault is not None and fault.extra == "hold" and self._socket is not None:
            children.hold_port(self._socket)
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


def create_app(settings: Settings, *, server: SimulatedServer | None = None) -> web.Application:
    """The aiohttp application of a server; without `server` a new one is made (for aiohttp's test utilities)."""
    owner = server or SimulatedServer(settings)
    app = web.Application(middlewares=[_make_gate(owner)], client_max_size=_MAX_BODY_BYTES)
    app[SERVER] = owner
    generation, control, info = GenerationEndpoints(owner), ControlEndpoints(owner), InfoEndpoints(owner)
    app.router.add_post("/v1/chat/completions", generation.chat)
    app.router.add_get("/v1/models", info.models)
    app.router.add_get("/simulator/faults", control.read_faults)
    app.router.add_post("/simulator/faults", control.set_faults)
    app.router.add_get("/simulator/settings", info.settings_of_simulator)
    if settings.profile is not Profile.API:
        app.router.add_post("/generate", generation.generate)
        app.router.add_post("/v1/tokenize", generation.tokenize)
        app.router.add_post("/tokenize", generation.tokenize)
        app.router.add_get("/health", info.health)
        app.router.add_get("/health_generate", info.health)
        app.router.add_get("/get_model_info", info.model_info)
        app.router.add_get("/get_server_info", info.server_info)
        app.router.add_post("/abort_request", control.abort_request)
        app.router.add_route("*", "/flush_cache", control.flush_cache)
        if settings.enable_metrics:
            app.router.add_get("/metrics", info.metrics)
    if settings.profile is Profile.OLD:
        app.router.add_get("/get_load", info.old_load)
    if settings.profile is Profile.SGLANG:
        app.router.add_get("/ready", info.ready)
        app.router.add_get("/model_info", info.model_info)
        app.router.add_get("/server_info", info.server_info)
        app.router.add_get("/v1/loads", info.loads)
        app.router.add_post("/pause_generation", control.pause_generation)
        app.router.add_post("/continue_generation", control.continue_generation)

    async def open_engine(_: web.Application) -> None:
        owner.open_engine()

    async def close_engine(_: web.Application) -> None:
        owner.engine.close()

    app.on_startup.append(open_engine)
    app.on_cleanup.append(close_engine)
    return app


SERVER = web.AppKey("server", SimulatedServer)


def _make_gate(server: SimulatedServer) -> Middleware:
    """Keys, the access log and the counts of HTTP requests, around every handler."""
    settings = server.settings

    @web.middleware
    async def gate(request: web.Request, handler: Handler) -> web.StreamResponse:
        path = request.path
        counts = server.engine.counts
        key = (path, request.method)
        counts.http_requests[key] = counts.http_requests.get(key, 0) + 1
        status = 401
        try:
            if not is_allowed(
                path,
                request.headers.get("Authorization"),
                api_key=settings.api_key,
                admin_api_key=settings.admin_api_key,
            ):
                return web.json_response({"error": "Unauthorized"}, status=401)
            response = await handler(request)
            status = response.status
        except web.HTTPException as error:
            status = error.status
            raise
        finally:
            answered = (path, request.method, status)
            counts.http_responses[answered] = counts.http_responses.get(answered, 0) + 1
            if settings.access_log:
                peer = request.transport.get_extra_info("peername") if request.transport else None
                name = f"{peer[0]}:{peer[1]}" if peer else "-"
                server.log.write_access(name, request.method, request.path_qs, status)
        return response

    return gate
