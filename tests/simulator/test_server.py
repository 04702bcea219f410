"""The server inside an event loop."""

from __future__ import annotations

import socket

import pytest
from aiohttp.test_utils import TestClient, TestServer

from backend.simulator.server import SERVER, SimulatedServer, create_app
from backend.simulator.settings import Settings

from .conftest import Serve


async def test_the_application_works_with_aiohttps_test_utilities() -> None:
    app = create_app(Settings(speed=1000.0))
    async with TestClient(TestServer(app)) as client:
        reply = await client.post(
            "/v1/chat/completions", json={"messages": [{"role": "user", "content": "x"}], "max_tokens": 5}
        )
        assert (await reply.json())["usage"]["completion_tokens"] == 5
        assert app[SERVER].engine.counts.by_stream[False].requests == 1


async def test_a_port_in_use_raises_oserror_and_leaves_nothing_open() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        server = SimulatedServer(Settings(port=taken.getsockname()[1]))
        with pytest.raises(OSError, match="in use"):
            await server.start()


async def test_two_servers_in_one_loop_do_not_share_anything(serve: Serve) -> None:
    async with serve() as first, serve() as second:
        await first.chat()
        assert await first.metric("num_requests_total") == 1
        assert await second.metric("num_requests_total") is None


async def test_settings_are_shown_without_keys(serve: Serve) -> None:
    async with serve(api_key="very secret") as client:
        status, text = await client.get("/simulator/settings")
        assert status == 200
        assert '"speed":100.0' in text
        assert "very secret" not in text
