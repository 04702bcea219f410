"""A simulator inside the test's event loop, with a client for it."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from typing import Any

import aiohttp
import pytest

from backend.simulator.lengths import LengthRule
from backend.simulator.server import SimulatedServer
from backend.simulator.settings import Settings


@dataclass(frozen=True, slots=True)
class Client:
    """Requests to one simulated server."""

    server: SimulatedServer
    session: aiohttp.ClientSession

    async def get(self, path: str, **headers: str) -> tuple[int, str]:
        async with self.session.get(self.server.url + path, headers=headers) as response:
            return response.status, await response.text()

    async def json(self, path: str) -> Any:
        async with self.session.get(self.server.url + path) as response:
            assert response.status == 200, await response.text()
            return await response.json()

    async def post(self, path: str, body: Any, **headers: str) -> tuple[int, Any]:
        async with self.session.post(self.server.url + path, json=body, headers=headers) as response:
            text = await response.text()
            return response.status, (await response.json(content_type=None)) if text.startswith("{") else text

    async def chat(self, prompt: str = "What is 2+2?", **body: Any) -> tuple[int, Any]:
        return await self.post("/v1/chat/completions", {"messages": [{"role": "user", "content": prompt}], **body})

    async def faults(self, **faults: Any) -> None:
        status, reply = await self.post("/simulator/faults", {name.replace("_", "-"): value for name, value in faults.items()})
        assert status == 200, reply

    async def metric(self, name: str, **labels: str) -> float | None:
        """The first row of a metric with these labels; None if there is none."""
        _, text = await self.get("/metrics")
        for line in text.splitlines():
            if line.startswith(f"sglang:{name}") and line[len(name) + 7] in "{ ":
                row = line.rpartition(" ")
                if all(f'{key}="{value}"' in row[0] for key, value in labels.items()):
                    return float(row[2])
        return None


Serve = Callable[..., contextlib.AbstractAsyncContextManager[Client]]


@pytest.fixture
def serve() -> Serve:
    """`async with serve(speed=50, mean=100) as client:`; takes the fields of Settings, and mean and log_sd of lengths."""

    @contextlib.asynccontextmanager
    async def start(
        *, mean: float = 200, log_sd: float = 0.5, rule: LengthRule | None = None, **fields: Any
    ) -> AsyncIterator[Client]:
        given = {"port": 0, "speed": 100.0, "enable_metrics": True, "reasoning_parser": "qwen3", "health_delay_s": 0.0}
        given["rules"] = (rule or LengthRule(mean=mean, log_sd=log_sd),)
        async with SimulatedServer(Settings(**(given | fields))) as server, aiohttp.ClientSession() as session:
            yield Client(server, session)

    return start
