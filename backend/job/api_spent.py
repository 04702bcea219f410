"""What a run has spent at its APIs so far, in all lives, from rows and billed attempts; and the engine's lengths."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable
from contextlib import closing
from dataclasses import dataclass

import pyarrow.compute as pc
import pyarrow.parquet as pq

from backend.run_dir import RunDir, open_ledger


@dataclass(slots=True)
class Spent:
    """Of one API."""

    usd: float = 0.0  # samples, superseded ones included, and attempts that failed
    samples: int = 0
    completion_tokens: int = 0
    unpriced: int = 0  # samples whose cost is unknown


def spent_so_far(run: RunDir, apis: Collection[str]) -> dict[str, Spent]:
    """API → what it has cost. Reads three columns of every shard, so it is fit for a thread. Raises OSError, ArrowException."""
    found: dict[str, Spent] = {name: Spent() for name in apis}
    with closing(open_ledger(run, read_only=True)) as con:
        rows = con.execute("SELECT source, cost_usd, completion_tokens, count(*) AS samples FROM open_rows GROUP BY 1, 2, 3")
        for row in rows:
            _add(found, row["source"], row["cost_usd"], row["completion_tokens"], row["samples"])
        bills = con.execute("SELECT source, total(cost_usd) FROM billed_attempts WHERE outcome != 'finished' GROUP BY source")
        for source, usd in bills:
            if source in found:
                found[source].usd += usd
        paths = [run.root / row["path"] for row in con.execute("SELECT path FROM sealed_shards")]
    for path in paths:
        for source, usd, tokens in _of_shard(path, apis):
            _add(found, source, usd, tokens, 1)
    return found


def _of_shard(path: object, apis: Collection[str]) -> Iterable[tuple[str, float | None, int]]:
    with pq.ParquetFile(path) as file:
        table = file.read(columns=["source", "cost_usd", "completion_tokens"])
    if not set(pc.unique(table["source"]).to_pylist()) & set(apis):
        return
    yield from zip(*(table[name].to_pylist() for name in ("source", "cost_usd", "completion_tokens")), strict=True)


def _add(found: dict[str, Spent], source: str, usd: float | None, tokens: int, samples: int) -> None:
    spent = found.get(source)
    if spent is None:
        return
    spent.samples += samples
    spent.completion_tokens += tokens * samples
    if usd is None:
        spent.unpriced += samples
    else:
        spent.usd += usd * samples


def lengths_of_engine(run: RunDir, datasets: Collection[str], started_before: float) -> dict[str, list[int]]:
    """Dataset → completion tokens of what the engine answered, of requests started before `started_before` (epoch seconds).

    Where that is the start of the oldest request in flight, no short answer is over-represented for having ended first.
    """
    found: dict[str, list[int]] = defaultdict(list)
    with closing(open_ledger(run, read_only=True)) as con:
        query = "SELECT dataset, completion_tokens FROM open_rows WHERE source = 'local' AND finish_reason != 'rejected'"
        for row in con.execute(f"{query} AND started_at < ?", (started_before,)):
            found[row["dataset"]].append(row["completion_tokens"])
        marks = ", ".join("?" * len(datasets))
        paths = con.execute(f"SELECT path, dataset FROM sealed_shards WHERE dataset IN ({marks})", tuple(datasets)).fetchall()
    for path, dataset in paths:
        with pq.ParquetFile(run.root / path) as file:
            columns = file.read(columns=["source", "finish_reason", "completion_tokens", "started_at"]).to_pydict()
        found[dataset] += [
            tokens
            for source, reason, tokens, at in zip(*columns.values(), strict=True)
            if source == "local" and reason != "rejected" and at.timestamp() < started_before
        ]
    return {dataset: lengths for dataset, lengths in found.items() if dataset in datasets}
