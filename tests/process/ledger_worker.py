"""A process to kill: appends samples that are not done yet and seals them, as fast as it can, until all are done.

python -m tests.process.ledger_worker RUN_DIR SAMPLES [STEP]: with a STEP of sealing (as `Sealer.on_step` names them, or
`deleting`) it kills itself there, at the second seal. Each id is written to RUN_DIR/acknowledged.txt once it is durable.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import time
from pathlib import Path

from backend.job.ledger import Ledger
from backend.job.sealing import Sealer
from backend.run_dir import RunDir
from tests.sample_rows import make_row

DATASETS = ("B1", "B2")
IN_FLIGHT = 20


async def work(run: RunDir, samples: int, step_to_die_at: str | None) -> None:
    ledger = Ledger.open(run)
    acknowledged = os.open(run.root / "acknowledged.txt", os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    seen: dict[str, int] = {}

    def die_at(step: str) -> None:
        seen[step] = seen.get(step, 0) + 1
        if step == step_to_die_at and seen[step] == 2:
            os.kill(os.getpid(), signal.SIGKILL)

    original = ledger.delete_sealed

    def delete_sealed(dataset: str, last_seq: int) -> asyncio.Future[None]:
        future = original(dataset, last_seq)
        die_at("deleting")
        return future

    ledger.delete_sealed = delete_sealed  # type: ignore[method-assign]
    sealer = Sealer(ledger, shard_rows=60, shard_seconds=900, on_step=die_at)
    slots = asyncio.Semaphore(IN_FLIGHT)

    async def make(dataset: str, number: int) -> None:
        async with slots:
            row = make_row(number, dataset=dataset, completion_tokens=number + 1, finished_at=time.time())
            await ledger.append(row)
            os.write(acknowledged, f"{dataset} {row.sample_id}\n".encode())

    async def seal_all_the_time() -> None:
        while True:
            await sealer.seal_due(time.time())
            await asyncio.sleep(0.002)

    sealing = asyncio.create_task(seal_all_the_time())
    todo = [(d, n) for n in range(samples) for d in DATASETS if not ledger.is_done(d, make_row(n).sample_id)]
    await asyncio.gather(*(make(dataset, number) for dataset, number in todo))
    sealing.cancel()
    for dataset in DATASETS:
        await sealer.seal(dataset)
    await ledger.close()


if __name__ == "__main__":
    asyncio.run(work(RunDir(Path(sys.argv[1])), int(sys.argv[2]), sys.argv[3] if len(sys.argv) > 3 else None))
