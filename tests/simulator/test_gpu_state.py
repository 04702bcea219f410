"""The file that a fake NVML reads."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

from backend.simulator.gpu_state import file_for, write_forever, write_once

from .conftest import Serve


def test_the_file_holds_every_gpu_and_nothing_half_written(tmp_path: Path) -> None:
    path = tmp_path / "gpus.txt"
    write_once(path, (0, 3), busy=0.5, power_w=400.0, energy_mj=1234.0)
    values = dict(line.split(" ") for line in path.read_text().splitlines())
    assert values["0.util"] == values["3.util"] == "50"
    assert values["3.power_w"] == "400"
    assert values["3.energy_mj"] == "1234"
    assert set(values) == {
        f"{index}.{key}" for index in (0, 3) for key in ("util", "mem_used_gib", "power_w", "temp", "energy_mj")
    }
    assert list(tmp_path.iterdir()) == [path]


def test_servers_that_share_a_folder_write_a_file_each(tmp_path: Path) -> None:
    assert file_for(str(tmp_path / "one"), (0,)) == tmp_path / "one"
    assert file_for(str(tmp_path), (0, 1)) == tmp_path / "gpus-0-1"
    assert file_for(str(tmp_path), (2,)) == tmp_path / "gpus-2"


async def test_utilisation_follows_the_load(serve: Serve, tmp_path: Path) -> None:
    path = tmp_path / "gpus.txt"

    async def until_util(wanted) -> None:  # type: ignore[no-untyped-def]
        deadline = time.monotonic() + 20
        while not (path.exists() and wanted(int(path.read_text().split()[1]))):
            assert time.monotonic() < deadline
            await asyncio.sleep(0.05)

    async with serve(speed=10, mean=20_000, log_sd=0) as client:
        writer = asyncio.create_task(write_forever(path, (0,), client.server.engine))
        await until_util(lambda util: util == 0)
        tasks = [asyncio.create_task(client.chat(f"p{n}")) for n in range(20)]
        await until_util(lambda util: util > 80)
        await client.post("/abort_request", {"abort_all": True})
        await asyncio.gather(*tasks)
        await until_util(lambda util: util == 0)
        writer.cancel()
