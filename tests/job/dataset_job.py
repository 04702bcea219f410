"""What decides about datasets and tells of them, without a supervisor: runners, their ledger, wishes."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path

from backend.job.dataset_runner import DatasetRunner
from backend.job.ledger import Ledger
from backend.job.wishes import Want, Wishes, initial
from tests.job.made_job import make_config, make_run_dir, make_runners
from tests.sample_rows import make_row


class Job:
    """Dataset A of three prompts, B of one."""

    def __init__(self, folder: Path) -> None:
        config = make_config(folder, {"A": ["a", "b", "c"], "B": ["d"]}, dataset={"max_samples": 2})
        self.ledger = Ledger.open(make_run_dir(folder))
        self.runners = make_runners(config, self.ledger)
        self.wishes = initial(config)

    @property
    def runner(self) -> DatasetRunner:
        return self.runners["A"]

    def wanting(self, want: Want) -> Wishes:
        a = replace(self.wishes.datasets["A"], want=want)
        return replace(self.wishes, datasets={**self.wishes.datasets, "A": a})

    async def finish(self, **changes: object) -> None:
        prompt = self.runner.take()
        self.runner.started(prompt)
        row = make_row(0, dataset="A", sample_id=prompt.sample_id, **changes)
        future = self.ledger.append(row)
        await self.ledger.flush()
        await asyncio.gather(future)
        self.runner.finished(prompt, row, None)
