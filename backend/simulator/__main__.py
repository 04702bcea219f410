"""The process: loads (takes its time), binds the port only then, serves, drains on SIGTERM; exit codes as SGLang's."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import time
from pathlib import Path

from backend.simulator.children import Child, kill_children, start_children, watch_children
from backend.simulator.command_line import parse_settings
from backend.simulator.gpu_state import file_for, write_forever
from backend.simulator.log import Log
from backend.simulator.server import SimulatedServer
from backend.simulator.settings import CAP_WARNING, Profile, Settings

_STARTUP_FAILURE = 3
_LOAD_STEPS = 10


def main(argv: list[str]) -> int:
    """Run until stopped. Exit code: 0 drained, 2 wrong flags, 3 port in use, -9 a child or a fault killed it."""
    settings = parse_settings(argv)
    log = Log(enabled=True, access=settings.access_log)
    children: tuple[Child, ...] = ()
    if settings.children and settings.profile is not Profile.API:
        children = start_children(settings.tp_size)
    try:
        _load(settings, log)
        return asyncio.run(_serve(settings, log, children))
    finally:
        kill_children(children)


def _load(settings: Settings, log: Log) -> None:
    """What SGLang says while it loads. No signal handler yet: SIGTERM ends the process at once, as there."""
    log.write(f"server_args={{'model_path': {settings.model_path!r}, 'tp_size': {settings.tp_size}}}")
    if settings.speculative_algorithm and settings.max_running_requests is None:
        log.write(CAP_WARNING)
    log.write("Init parallel begin.")
    log.write("Load weight begin. avail mem=139.20 GB")
    hangs = any(name == "hang-at-start" for name, _ in settings.faults)
    for step in range(_LOAD_STEPS + 1):
        share = 100 * step // _LOAD_STEPS
        log.write_raw(f"Multi-thread loading shards: {share:3d}% Completed | {step}/{_LOAD_STEPS}")
        while hangs and step == _LOAD_STEPS // 2:
            time.sleep(60)
        time.sleep(settings.load_s / (_LOAD_STEPS + 1))
    log.write(
        f"Load weight end. elapsed={settings.load_s:.2f} s, type=SimulatedForCausalLM, avail mem=79.20 GB, mem usage=60.00 GB."
    )
    log.write(
        f"KV Cache is allocated. dtype: torch.bfloat16, #tokens: {settings.max_total_tokens}, "
        "K size: 25.00 GB, V size: 25.00 GB"
    )
    log.write(
        f"max_total_num_tokens={settings.max_total_tokens}, chunked_prefill_size=8192, max_prefill_tokens=16384, "
        f"max_running_requests={settings.max_running}, context_len={settings.context_length}, available_gpu_mem=27.10 GB"
    )


async def _serve(settings: Settings, log: Log, children: tuple[Child, ...]) -> int:
    server = SimulatedServer(settings, log=log)
    log.write(f"INFO:     Started server process [{os.getpid()}]")
    log.write("INFO:     Waiting for application startup.")
    log.write("INFO:     Application startup complete.")
    try:
        await server.start()
    except OSError as error:
        log.write(
            f"ERROR:    [Errno {error.errno}] error while attempting to bind on address "
            f"('{settings.host}', {settings.port}): address already in use"
        )
        return _STARTUP_FAILURE
    log.write(f"INFO:     Uvicorn running on {server.url} (Press CTRL+C to quit)")
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    tasks = [loop.create_task(watch_children(server, children))] if children else []
    if settings.gpu_state_file:
        path = file_for(settings.gpu_state_file, settings.gpus)
        tasks.append(loop.create_task(write_forever(path, settings.gpus, server.engine)))
    if settings.port_file:
        part = Path(settings.port_file + ".part")
        part.write_text(f"{server.port}\n")
        part.replace(settings.port_file)
    log.write("The server is fired up and ready to roll!")
    await stop.wait()
    if server.up:
        log.write("SIGTERM received. signum=None frame=None. Draining requests and shutting down...")
        await server.drain()
    else:
        log.write("Signal SIGTERM received while health check failed. Force exiting.")
    for task in tasks:
        task.cancel()
    await server.stop()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
