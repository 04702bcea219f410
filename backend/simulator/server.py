"""One simulated server: routes, faults that concern all of it, start and stop inside an event loop.

The process around it (load, children, signals) is __main__.py's.
"""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import AsyncIterator
from types import TracebackType
from typing import Self

from aiohttp import web
from aiohttp.typedefs import Handler, Middleware

from backend.simulator.auth import is_allowed
from backend.simulator.billing import Bill
from backend.simulator.control_endpoints import ControlEndpoints
from backend.simulator.engine import Engine, Generation
from backend.simulator.faults import Faults, parse_fault
from backend.simulator.generation_endpoints import GenerationEndpoints
from backend.simulator.info_endpoints import InfoEndpoints
from backend.simulator.log import Log
from backend.simulator.rate_limits import RateLimits
from backend.simulator.server_faults import ServerFaults
from backend.simulator.serving import watch_clients
from backend.simulator.settings import Profile, Settings

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
        self.bill = Bill(settings)
        self.limits: RateLimits | None = None
        if settings.profile is Profile.API:
            self.limits = RateLimits(settings.requests_per_minute, settings.tokens_per_minute, settings.speed, self.faults)
        self.pid = os.getpid()
        self.exiting = False
        self.up = True
        self.port = settings.port
        self.clients: dict[Generation, web.Request] = {}
        """Requests that wait for their answer, with the connections they came by."""
        self.engine: Engine
        self.server_faults: ServerFaults
        self._runner: web.AppRunner | None = None
        self._socket: socket.socket | None = None

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
        self.server_faults.listener = self._socket
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
        self.server_faults = ServerFaults(self.faults, self.engine, self.log)
        for name, argument in self.settings.faults:
            self.server_faults.switch_on(parse_fault(name, argument))


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
    if settings.profile is Profile.API:
        app.router.add_get("/v1/generation", info.generation)
        app.router.add_get("/simulator/bill", info.bill)
    else:
        app.router.add_post("/generate", generation.generate)
        app.router.add_post("/v1/tokenize", generation.tokenize)
        app.router.add_post("/tokenize", generation.tokenize)
        app.router.add_post("/v1/detokenize", generation.detokenize)
        app.router.add_post("/detokenize", generation.detokenize)
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

    async def run_engine(_: web.Application) -> AsyncIterator[None]:
        owner.open_engine()
        watch = asyncio.create_task(watch_clients(owner))
        yield
        watch.cancel()
        owner.engine.close()

    app.cleanup_ctx.append(run_engine)
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
