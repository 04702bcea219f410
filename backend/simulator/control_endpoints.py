"""Endpoints that change something: abort, pause, continue, flush, and the simulator's own fault switch."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aiohttp import web

from backend.simulator.answers import dump
from backend.simulator.engine import PAUSE
from backend.simulator.faults import KINDS, UnknownFaultError, parse_fault
from backend.simulator.generation import BadRequestError, Json, parse_json

if TYPE_CHECKING:
    from backend.simulator.server import SimulatedServer

_PAUSE_MODES = ("abort", "in_place", "retract")


def _reply(body: Json, status: int = 200) -> web.Response:
    return web.Response(body=dump(body), status=status, content_type="application/json")


class ControlEndpoints:
    """The handlers that steer the engine."""

    def __init__(self, server: SimulatedServer) -> None:
        self._server = server

    async def abort_request(self, http: web.Request) -> web.Response:
        """Always 200, whatever was found, as SGLang answers."""
        try:
            body = await _body_of(http)
        except BadRequestError as error:
            return _reply({"error": {"message": str(error)}}, 400)
        if "ignore-abort" not in self._server.faults:
            if body.get("abort_all"):
                self._server.engine.abort_all()
            else:
                self._server.engine.abort(str(body.get("rid") or ""))
        return web.Response(status=200)

    async def pause_generation(self, http: web.Request) -> web.Response:
        try:
            mode = (await _body_of(http)).get("mode", "abort")
        except BadRequestError as error:
            return _reply({"error": {"message": str(error)}}, 400)
        if mode not in _PAUSE_MODES:
            return _reply({"error": {"message": f"mode must be one of {', '.join(_PAUSE_MODES)}, got {mode!r}"}}, 400)
        self._server.engine.pause(mode)
        return _reply({"message": f"Generation paused successfully: mode={mode}", "status": "ok"})

    async def continue_generation(self, http: web.Request) -> web.Response:
        self._server.engine.go_on(PAUSE)
        return _reply({"message": "Generation continued successfully.", "status": "ok"})

    async def flush_cache(self, http: web.Request) -> web.Response:
        engine = self._server.engine
        if engine.flush_cache():
            self._server.log.write("Cache flushed successfully!")
            return web.Response(text="Cache flushed.\nPlease check backend logs for more details. ")
        scheduler = engine.scheduler
        self._server.log.write(
            f"Cache not flushed because there are pending requests. #queue-req: {len(scheduler.waiting)}, "
            f"#running-req: {scheduler.running_count}"
        )
        return web.Response(status=400, text="Flush cache failed.\nPlease check backend logs for more details. ")

    async def read_faults(self, http: web.Request) -> web.Response:
        active = {name: fault.value for name, fault in self._server.faults.active.items()}
        return _reply({"active": active, "known": {name: kind.meaning for name, kind in KINDS.items()}})

    async def set_faults(self, http: web.Request) -> web.Response:
        """{"name": argument}: null or true for the default, false to switch off."""
        try:
            body = await _body_of(http)
            wanted = {name: None if value is False else parse_fault(name, value) for name, value in body.items()}
        except (BadRequestError, UnknownFaultError) as error:
            return _reply({"error": {"message": str(error)}}, 400)
        for name, fault in wanted.items():
            if fault is None:
                self._server.server_faults.switch_off(name)
            else:
                self._server.server_faults.switch_on(fault)
        return await self.read_faults(http)


async def _body_of(http: web.Request) -> Json:
    data = await http.read()
    return parse_json(data) if data else {}
