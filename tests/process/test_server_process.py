"""A server process of this machine: started, watched, ended."""

from __future__ import annotations

import time

import aiohttp
from stand_in_run import MakeConfig, Until, one_replica

from backend.job.engine import ReplicaPhase
from backend.job.ports import is_free
from backend.run_dir import RunDir


async def test_a_server_is_started_observed_ready_and_stopped(
    run: RunDir, make_config: MakeConfig, until: Until, session: aiohttp.ClientSession
) -> None:
    replica = one_replica(make_config("--play-children", "2"), run)
    assert replica.adopt().outcome == "nothing"
    replica.launch(time.time())
    seen = await until(replica, ReplicaPhase.READY)
    assert seen.pid is not None
    assert seen.endpoint is not None
    assert seen.endpoint.owned
    record = run.servers / "0.json"
    assert record.stat().st_mode & 0o777 == 0o600
    port = int(seen.endpoint.base_url.rpartition(":")[2])
    report = await replica.stop(deadline_s=5)
    assert report.clean, report
    assert is_free(port)
    assert not record.exists()
    assert (await replica.observe(session, time.time())).phase is ReplicaPhase.ABSENT
