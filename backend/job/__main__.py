"""`python -m backend.job RUN`: one supervisor for one run, until the run is finished, stopped or has failed.

Exit codes: 0 finished or stopped; 1 failed, the last event says why; 2 wrong usage; 3 another supervisor holds the lock.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import logging
import os
import sys
from logging.handlers import RotatingFileHandler
from pathlib import Path
from typing import Final

import aiohttp

from backend.config import ConfigError, EngineKind, RunConfig, load
from backend.job.group_commit import LedgerError
from backend.job.ledger import Ledger
from backend.job.lock import AlreadyRunningError, supervisor_lock
from backend.job.state_store import StateStore
from backend.job.supervisor import Supervisor
from backend.run_dir import RunDir, RunDirError

FAILED: Final = 1
LOCKED: Final = 3
LOG_BYTES: Final = 20 << 20
LOG_FILES: Final = 5
SIMULATED_GPUS: Final = ("HEADWAY_NVML_LIBRARY", "FAKE_NVML_DIR")  # where NVML and the values of its stand-in are


def main(arguments: list[str] | None = None) -> int:
    """Runs the supervisor; what stops it is one sentence on stderr, which `start` shows."""
    parser = argparse.ArgumentParser(prog="python -m backend.job", description="Works on one run until it ends.")
    parser.add_argument("run", type=Path, help="the run's folder")
    run = RunDir(parser.parse_args(arguments).run.resolve())
    try:
        config = load(run.config)
        run.create_folders()
        _log_to(run.supervisor_log())
        if config.engine.kind is EngineKind.SIMULATED:
            # A simulated box brings its GPUs along: whoever starts this run, they are seen, and by no other run.
            os.environ |= {name: value for name, value in config.engine.env.items() if name in SIMULATED_GPUS}
        with supervisor_lock(run):
            return asyncio.run(_work(run, config))
    except AlreadyRunningError as error:
        print(error, file=sys.stderr)
        return LOCKED
    except (ConfigError, RunDirError, LedgerError, OSError) as error:
        logging.getLogger(__name__).error("%s", error)  # noqa: TRY400  # the sentence is for people, the trace is none
        print(error, file=sys.stderr)
        return FAILED


async def _work(run: RunDir, config: RunConfig) -> int:
    store = StateStore(run)
    ledger = Ledger.open(run)
    timeout = aiohttp.ClientTimeout(total=None, sock_connect=10)
    connector = aiohttp.TCPConnector(limit=0, keepalive_timeout=30)
    try:
        async with aiohttp.ClientSession(timeout=timeout, connector=connector) as session:
            supervisor = Supervisor(run, config, ledger, store, session)
            gc.freeze()  # what the imports made stays: the collector need not look at it again
            return await supervisor.run()
    finally:
        await ledger.close()
        store.close()


def _log_to(path: Path) -> None:
    handler = RotatingFileHandler(path, maxBytes=LOG_BYTES, backupCount=LOG_FILES, encoding="utf-8", errors="backslashreplace")
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))
    logging.basicConfig(level=logging.INFO, handlers=[handler])
    logging.getLogger("aiohttp").setLevel(logging.WARNING)


if __name__ == "__main__":
    sys.exit(main())
