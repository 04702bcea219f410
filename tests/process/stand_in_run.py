"""What tests of processes share: the stand-in server and how a replica of it is made."""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from backend.config import RunConfig
from backend.job.engine import Replica, ReplicaObservation, build_replicas
from backend.run_dir import RunDir

STAND_IN = Path(__file__).with_name("stand_in_server.py")

MakeConfig = Callable[..., RunConfig]
Until = Callable[..., Awaitable[ReplicaObservation]]


def one_replica(config: RunConfig, run: RunDir, environ: dict[str, str] | None = None, **named: Any) -> Replica:
    """The first replica, not started."""
    return build_replicas(config, run, dict(os.environ) if environ is None else environ, **named)[0]
