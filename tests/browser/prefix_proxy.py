"""A reverse proxy that shows the dashboard below a path, as JupyterHub and VS Code do: the prefix is cut off on the way in."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from aiohttp import ClientSession, WSMsgType, web

from tests.browser.dashboard_process import free_port

_HOP_BY_HOP = {"connection", "upgrade", "keep-alive", "transfer-encoding", "content-length", "content-encoding", "host"}


@contextmanager
def prefix_proxy(prefix: str, target_port: int) -> Iterator[str]:
    """Serves 127.0.0.1:`target_port` below `prefix` ("/a/b") from a thread. Yields the address of the proxied root."""
    port, loop = free_port(), asyncio.new_event_loop()
    started = threading.Event()

    async def serve() -> None:
        async with ClientSession(auto_decompress=True) as session:
            app = web.Application()
            app.router.add_route("*", prefix + "/{path:.*}", _Forward(session, f"127.0.0.1:{target_port}").handle)
            runner = web.AppRunner(app, shutdown_timeout=1)
            await runner.setup()
            await web.TCPSite(runner, "127.0.0.1", port).start()
            started.set()
            await ended.wait()
            await runner.cleanup()

    ended = asyncio.Event()
    thread = threading.Thread(target=loop.run_until_complete, args=(serve(),), name="proxy", daemon=True)
    thread.start()
    try:
        assert started.wait(10)
        yield f"http://127.0.0.1:{port}{prefix}/"
    finally:
        loop.call_soon_threadsafe(ended.set)
        thread.join(10)
        loop.close()


class _Forward:
    """One request or one websocket, handed on."""

    def __init__(self, session: ClientSession, host: str) -> None:
        self.session, self.host = session, host

    async def handle(self, request: web.Request) -> web.StreamResponse:
        path = "/" + request.match_info["path"] + (f"?{request.query_string}" if request.query_string else "")
        if request.headers.get("Upgrade", "").lower() == "websocket":
            return await self._websocket(request, path)
        headers = {name: value for name, value in request.headers.items() if name.lower() not in _HOP_BY_HOP}
        body = await request.read()
        async with self.session.request(
            request.method, f"http://{self.host}{path}", headers=headers, data=body, allow_redirects=False
        ) as answer:
            kept = {name: value for name, value in answer.headers.items() if name.lower() not in _HOP_BY_HOP}
            return web.Response(body=await answer.read(), status=answer.status, headers=kept)

    async def _websocket(self, request: web.Request, path: str) -> web.WebSocketResponse:
        asked = [word.strip() for word in request.headers.get("Sec-WebSocket-Protocol", "").split(",") if word.strip()]
        headers = {"Cookie": request.headers["Cookie"]} if "Cookie" in request.headers else {}
        headers["Origin"] = f"http://{self.host}"
        async with self.session.ws_connect(
            f"ws://{self.host}{path}", protocols=asked, headers=headers, max_msg_size=0
        ) as behind:
            front = web.WebSocketResponse(protocols=[behind.protocol] if behind.protocol else (), max_msg_size=0)
            await front.prepare(request)
            both = (asyncio.ensure_future(_pump(front, behind)), asyncio.ensure_future(_pump(behind, front)))
            await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
            for task in both:
                task.cancel()
            await front.close()
            return front


async def _pump(source: object, target: object) -> None:
    async for message in source:  # type: ignore[attr-defined]
        if message.type is WSMsgType.BINARY:
            await target.send_bytes(message.data)  # type: ignore[attr-defined]
        elif message.type is WSMsgType.TEXT:
            await target.send_str(message.data)  # type: ignore[attr-defined]
