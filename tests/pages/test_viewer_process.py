"""The viewer's process, having served a session, holds nothing that could write a wish."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import aiohttp
from streamlit.proto.BackMsg_pb2 import BackMsg
from streamlit.proto.ForwardMsg_pb2 import ForwardMsg

from backend.commands.serving import ROOT, command, free_port
from backend.commands.view import VIEWER
from tests.pages.states import run_in

PATIENCE_S = 60.0


def test_the_process_that_served_a_viewer_never_imported_what_steers(tmp_path: Path) -> None:
    port, told = free_port("127.0.0.1", 18_650), tmp_path / "modules"
    assert port is not None
    streamlit = command(VIEWER, "127.0.0.1", port)[3:]
    with run_in("running", tmp_path) as run:
        process = subprocess.Popen(
            [sys.executable, "-m", "tests.pages.serve_viewer", str(told), *streamlit],
            cwd=ROOT,
            env={**os.environ, "HEADWAY_VIEW": str(run.root)},
            stdout=subprocess.DEVNULL,
        )
        try:
            shown = asyncio.run(asyncio.wait_for(watch(port, process), PATIENCE_S))
        finally:
            process.send_signal(signal.SIGINT)
            process.wait(20)
    assert "Running alpha" in shown
    held = told.read_text().splitlines()
    assert {"pages.viewer_routes", "backend.report.public"} <= set(held)
    steering = ("backend.control", "backend.job", "backend.commands", "pages.buttons", "pages.pressing", "pages.frame")
    assert [name for name in held if name.startswith(steering)] == []


async def watch(port: int, process: subprocess.Popen[bytes]) -> str:
    """One session as a browser begins it: connect, ask for the page, hear it to its end. All that was sent, as text."""
    async with aiohttp.ClientSession() as client:
        await answers(client, port, process)
        async with client.ws_connect(f"ws://127.0.0.1:{port}/_stcore/stream", protocols=["streamlit"]) as stream:
            await stream.send_bytes(BackMsg(rerun_script={"query_string": ""}).SerializeToString())
            heard = []
            async for message in stream:
                said = ForwardMsg.FromString(message.data)
                heard.append(str(said))
                if said.WhichOneof("type") == "script_finished":
                    return "\n".join(heard)
    raise AssertionError(f"the session ended early: {heard}")


async def answers(client: aiohttp.ClientSession, port: int, process: subprocess.Popen[bytes]) -> None:
    """Waits until the server does."""
    deadline = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline:
        assert process.poll() is None
        try:
            async with client.get(f"http://127.0.0.1:{port}/_stcore/health") as response:
                if response.status == 200:
                    return
        except aiohttp.ClientError:
            await asyncio.sleep(0.05)
    raise AssertionError("no answer")
