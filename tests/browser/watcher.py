"""A tab without a browser: polls the live route and reruns the page's fragments when they ask for it, as a tab does."""

from __future__ import annotations

import asyncio
import contextlib

import aiohttp
from streamlit.proto.BackMsg_pb2 import BackMsg
from streamlit.proto.ForwardMsg_pb2 import ForwardMsg

from tests.browser.dashboard_process import Dashboard

POLL_S = 1.0


async def watch_overview(dashboard: Dashboard, run: str, tabs: int, ended: asyncio.Event) -> None:
    """So many tabs on Overview, until `ended`."""
    async with aiohttp.ClientSession() as session:
        tasks = [asyncio.create_task(work(session, dashboard, run)) for _ in range(tabs) for work in (_poll, _page)]
        await ended.wait()
        for task in tasks:
            task.cancel()
        failures = [each for each in await asyncio.gather(*tasks, return_exceptions=True) if isinstance(each, Exception)]
    if failures:
        raise failures[0]


async def _poll(session: aiohttp.ClientSession, dashboard: Dashboard, run: str) -> None:
    seq = 0
    while True:
        parameters = {"run": run, "since": str(seq), "window": "15m"}
        async with session.get(f"http://127.0.0.1:{dashboard.port}/api/live", params=parameters) as answer:
            answer.raise_for_status()
            seq = (await answer.json())["seq"]
        await asyncio.sleep(POLL_S)


async def _page(session: aiohttp.ClientSession, dashboard: Dashboard, run: str) -> None:
    reruns: dict[str, asyncio.Task[None]] = {}
    address = f"ws://127.0.0.1:{dashboard.port}/_stcore/stream"
    headers = {"Origin": f"http://127.0.0.1:{dashboard.port}"}
    async with session.ws_connect(address, headers=headers, protocols=["streamlit"], max_msg_size=0) as socket:
        await socket.send_bytes(_rerun(run))
        try:
            async for message in socket:
                told = ForwardMsg.FromString(message.data)
                if told.WhichOneof("type") == "auto_rerun" and told.auto_rerun.fragment_id not in reruns:
                    fragment, every_s = told.auto_rerun.fragment_id, told.auto_rerun.interval
                    reruns[fragment] = asyncio.create_task(_again(socket, run, fragment, every_s))
        finally:
            for task in reruns.values():
                task.cancel()
                with contextlib.suppress(asyncio.CancelledError):
                    await task


async def _again(socket: aiohttp.ClientWebSocketResponse, run: str, fragment: str, every_s: float) -> None:
    while True:
        await asyncio.sleep(every_s)
        await socket.send_bytes(_rerun(run, fragment))


def _rerun(run: str, fragment: str = "") -> bytes:
    message = BackMsg()
    message.rerun_script.query_string = f"run={run}"
    message.rerun_script.fragment_id = fragment
    message.rerun_script.is_auto_rerun = bool(fragment)
    return bytes(message.SerializeToString())
