"""One real SGLang on a CPU, started as Headway starts a server: a session of its own, output to a file, key in a file."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import subprocess
import time
import uuid
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp
import psutil

from backend.engine_cpu.place import SERVED_NAME, EnginePlace, engine_settings

READY_LIMIT_S = 240


@dataclass
class RealServer:
    """A running server and how to talk to it."""

    process: subprocess.Popen[bytes]
    port: int
    api_key: str
    log: Path
    place: EnginePlace

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def connect(self) -> aiohttp.ClientSession:
        """A client with the key and a time-out, whose base URL is the server's."""
        return aiohttp.ClientSession(
            self.url,
            headers={"Authorization": f"Bearer {self.api_key}"},
            timeout=aiohttp.ClientTimeout(total=60),
            connector=aiohttp.TCPConnector(limit=0),
        )

    def session_processes(self) -> list[psutil.Process]:
        """Every living process of the server's session."""
        found = []
        for process in psutil.process_iter():
            try:
                if os.getsid(process.pid) == self.process.pid and process.status() != psutil.STATUS_ZOMBIE:
                    found.append(process)
            except (ProcessLookupError, psutil.NoSuchProcess):
                continue
        return found

    def stop(self) -> None:
        """Asks, waits, then kills the whole session."""
        self.process.send_signal(signal.SIGTERM)
        try:
            self.process.wait(timeout=30)
        except subprocess.TimeoutExpired:
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait(timeout=10)
        deadline = time.monotonic() + 10
        while self.session_processes() and time.monotonic() < deadline:
            time.sleep(0.1)
        for process in self.session_processes():
            process.kill()


def start_server(place: EnginePlace, folder: Path) -> RealServer:
    """Starts it and waits until it is ready. Fails with the end of its log."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    api_key, log, config = uuid.uuid4().hex, folder / "server.log", folder / "server.yaml"
    config.touch(mode=0o600)
    config.write_text(f"api-key: {api_key}\n", encoding="ascii")
    settings = engine_settings(place.root)
    engine, model = settings["engine"], settings["model"]
    command = [
        engine["python"], "-m", "sglang.launch_server", "--config", str(config),
        "--model-path", model["path"], "--served-model-name", model["served_name"],
        "--host", "127.0.0.1", "--port", str(port), "--enable-metrics", *engine["args"],
    ]  # fmt: skip
    env = {name: value for name, value in os.environ.items() if name != "PROMETHEUS_MULTIPROC_DIR"} | engine["env"]
    with log.open("wb") as output:
        process = subprocess.Popen(
            command, env=env, cwd=folder, stdin=subprocess.DEVNULL, stdout=output, stderr=output, start_new_session=True
        )
    server = RealServer(process, port, api_key, log, place)
    try:
        asyncio.run(_wait_until_ready(server))
    except BaseException:
        server.stop()
        raise
    return server


async def _wait_until_ready(server: RealServer) -> None:
    deadline = time.monotonic() + READY_LIMIT_S
    async with server.connect() as client:
        while time.monotonic() < deadline:
            if server.process.poll() is not None:
                break
            try:
                async with client.get("/ready") as answer:
                    if answer.status == 200:
                        return
            except aiohttp.ClientConnectionError:
                pass  # the port is bound only after the model is loaded
            await asyncio.sleep(0.25)
    tail = "\n".join(server.log.read_text(errors="replace").splitlines()[-20:])
    raise AssertionError(f"not ready (exit code {server.process.poll()}); the log ends:\n{tail}")


def request_body(**changes: Any) -> dict[str, Any]:
    """A small request as Headway sends it."""
    body = {
        "model": SERVED_NAME,
        "messages": [{"role": "user", "content": "How many apples are in 3 boxes of 12?"}],
        "rid": uuid.uuid4().hex,
        "max_tokens": 24,
        "temperature": 1.0,
        "stream": False,
        "return_token_ids": True,
        "return_prompt_token_ids": True,
        "return_meta_info": True,
    }
    return body | changes


async def post(client: aiohttp.ClientSession, path: str, body: dict[str, Any]) -> tuple[int, Any]:
    """Status and decoded answer; None where the answer is empty."""
    async with client.post(path, json=body) as answer:
        text = await answer.text()
        return answer.status, json.loads(text) if text else None


async def complete(client: aiohttp.ClientSession, **changes: Any) -> tuple[int, Any]:
    """One chat completion."""
    return await post(client, "/v1/chat/completions", request_body(**changes))


async def load_of(client: aiohttp.ClientSession) -> dict[str, Any]:
    """The first (only) entry of /v1/loads."""
    async with client.get("/v1/loads") as answer:
        loads: dict[str, Any] = (await answer.json())["loads"][0]
        return loads


async def metric_of(client: aiohttp.ClientSession, name: str, label: str = "") -> float:
    """The sum over the lines of that metric that hold the label."""
    async with client.get("/metrics", headers={"Accept": "text/plain;version=0.0.4"}) as answer:
        lines = (await answer.text()).splitlines()
    return sum(float(line.split()[-1]) for line in lines if line.startswith(name + "{") and label in line)
