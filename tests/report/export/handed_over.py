"""Runs with finished samples to export, sealed by the job's own sealer, and ways to read an export back."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from backend.job.ledger import Ledger
from backend.job.sealing import Sealer
from backend.records import Facts, Outcome, Row
from backend.report.export.options import ExportOptions, Format
from backend.report.export.work import ExportResult, export
from backend.run_dir import RunDir
from tests.finished_samples import add_open
from tests.sample_rows import make_row

NOW = 1_790_000_000.0
TOOLS = [{"type": "function", "function": {"name": "add", "parameters": {"type": "object", "properties": {"a": {}}}}}]
CALLS = [{"id": "c1", "type": "function", "function": {"name": "add", "arguments": '{"a": 1}'}, "index": 0}]


def prompt(text: str, **more: Any) -> str:
    """The `messages` of a row that asks one thing."""
    return json.dumps({"messages": [{"role": "user", "content": text}], **more})


def sample(number: int, **changes: Any) -> Row:
    """A sample of alpha with a prompt and an answer of its own."""
    own = {
        "dataset": "alpha", "sample_id": f"alpha-{number}", "messages": prompt(f"say {number}"), "answer": f"it is {number}",
        "prompt_token_ids": (1, number), "output_ids": (7, number, 2), "completion_tokens": 3, "facts": Facts(answer_tokens=3),
    }  # fmt: skip
    return make_row(number, **(own | changes))


def seal(run: RunDir, rows: list[Row], *, shard_rows: int = 1000) -> None:
    """Rows become shards of their dataset, as the job makes them."""

    async def work() -> None:
        ledger = Ledger.open(run)
        for row in rows:
            ledger.append(row)
        await ledger.flush()
        sealer = Sealer(ledger, shard_rows=shard_rows, shard_seconds=900)
        for dataset in ledger.datasets():
            await sealer.seal(dataset)
        await ledger.close()

    asyncio.run(work())


def keep_open(run: RunDir, rows: list[Row]) -> None:
    """Rows that no shard holds yet."""
    add_open(run, rows)


def export_to(run: RunDir, to: Path, form: Format = Format.MESSAGES, **options: Any) -> ExportResult:
    """An export of alpha, all outcomes, without a held-out share, unless something else is asked for."""
    wanted = {"outcomes": tuple(Outcome), "holdout": 0.0, "datasets": ("alpha",)} | options
    return export(run, ExportOptions(format=form, to=to, **wanted), now=NOW)


def read_rows(folder: Path) -> list[dict[str, Any]]:
    """All rows of an export, by their ids."""
    rows: list[dict[str, Any]] = []
    for path in sorted(folder.glob("*.jsonl")):
        rows += [json.loads(line) for line in path.read_bytes().splitlines()]
    for path in sorted(folder.glob("*.parquet")):
        rows += pq.read_table(path).to_pylist()
    return sorted(rows, key=lambda row: str(row["id"]))


def without_nulls(value: Any) -> Any:
    """As it was before columns gave every object the fields of all others."""
    if isinstance(value, dict):
        return {key: without_nulls(item) for key, item in value.items() if item is not None}
    return [without_nulls(item) for item in value] if isinstance(value, list) else value
