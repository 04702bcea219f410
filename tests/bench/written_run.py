"""A run of 914,000 finished samples with texts and token ids, made without generating: sealed shards and their manifest."""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from backend.rows import COLUMNS, arrow_schema
from backend.run_dir import RunDir, open_ledger
from tests.made_run import make_run

ROWS: Final = 914_000
SHARD_ROWS: Final = 20_000
DATASETS: Final = ("alpha", "beta")  # of `make_run`
WORDS: Final = 5_000
NEEDLE: Final = "needle in the haystack"  # stands in one answer of each NEEDLE_EVERY
NEEDLE_EVERY: Final = 9_000
AT_US: Final = 1_790_000_000_000_000
NEAR: Final = 0.02  # of the answers have a hash that is near another one's


def make_written_run(folder: Path) -> RunDir:
    """Takes about half a minute and 1.5 GB. An answer has 1-2 kB of text, lengths are log-normal, one in ten was capped."""
    run = make_run(folder, "written")
    rng = np.random.default_rng(1)
    parts = _Parts(rng)
    with closing(open_ledger(run)) as con:
        for number, first in enumerate(range(0, ROWS, SHARD_ROWS), start=1):
            dataset = DATASETS[number % len(DATASETS)]
            path = run.shard(dataset, number)
            path.parent.mkdir(exist_ok=True)
            table = parts.table(dataset, first, min(SHARD_ROWS, ROWS - first))
            pq.write_table(table, path, compression="zstd", compression_level=1, row_group_size=5_000)
            _add_to_manifest(con, run, path, number, table.num_rows)
    return run


def repeat_shards(folder: Path, run: RunDir, times: int) -> RunDir:
    """Another run in which each shard of `run` stands `times` times, as links to the same files."""
    many = make_run(folder, "many")
    with closing(open_ledger(many)) as con:
        number = 0
        for path in sorted(run.shards.glob("*/*.parquet")):
            rows = pq.read_metadata(path).num_rows
            for _ in range(times):
                number += 1
                copy = many.shard(path.parent.name, number)
                copy.parent.mkdir(exist_ok=True)
                os.link(path, copy)
                _add_to_manifest(con, many, copy, number, rows)
    return many


class _Parts:
    """Texts and ids of one shard, of which every shard takes others: making each anew would take an hour."""

    def __init__(self, rng: np.random.Generator) -> None:
        self._rng = rng
        words = np.array([f"w{i}" if i % 3 else f"word{i}" for i in range(WORDS)])
        texts = [" ".join(words[rng.integers(0, WORDS, size)]) for size in rng.integers(150, 300, SHARD_ROWS)]
        self._texts = pa.array(texts)
        prompt = '{"messages":[{"role":"user","content":"%s"}]}'
        self._prompts = pa.array([prompt % " ".join(words[rng.integers(0, WORDS, 40)]) for _ in range(SHARD_ROWS)])
        self._ids = pa.array(list(rng.integers(0, 100_000, (SHARD_ROWS, 200)).astype("int32")), pa.list_(pa.int32()))
        self._schema = arrow_schema()

    def table(self, dataset: str, first: int, count: int) -> pa.Table:
        """Rows of positions `first` to `first` + `count`."""
        rng = self._rng
        tokens = np.minimum(rng.lognormal(7, 1, count).astype("int64"), 4_000)
        began = AT_US + (first + np.arange(count)) * 40_000 + rng.integers(0, 1_000_000, count)
        chosen = pa.array(rng.permutation(SHARD_ROWS)[:count])
        texts = [
            f"{first + i} {NEEDLE} {text}" if (first + i) % NEEDLE_EVERY == 0 else f"{first + i} {text}"
            for i, text in enumerate(self._texts.take(chosen).to_pylist())
        ]
        own: Mapping[str, Any] = {
            "sample_id": [f"{dataset}-{first + i:08d}" for i in range(count)],
            "position": np.arange(first, first + count),
            "completion_tokens": tokens,
            "answer_tokens": np.where(rng.random(count) < 0.05, 0, tokens),
            "finish_reason": np.where(tokens == 4_000, "length", "stop"),
            "simhash": self._hashes(count),
            "started_at": pa.array(began).cast(pa.timestamp("us", tz="UTC")),
            "first_token_at": pa.array(began + 100_000).cast(pa.timestamp("us", tz="UTC")),
            "finished_at": pa.array(began + 200_000 + tokens * 20_000).cast(pa.timestamp("us", tz="UTC")),
            "raw_text": texts,
            "answer": texts,
            "messages": self._prompts.take(chosen),
            "output_ids": self._ids.take(chosen),
        }
        same = {
            "dataset": dataset, "turn": 0, "attempt": 1, "source": "local", "model": "m", "prompt_tokens": 80,
            "cached_tokens": 0, "server_epoch": "0:1", "tokens_estimated": False,
        }  # fmt: skip
        columns = []
        for name in COLUMNS:
            kind = self._schema.field(name).type
            values = own.get(name)
            if values is None:
                columns.append(pa.repeat(pa.scalar(same.get(name), kind), count))
            else:
                columns.append(values if isinstance(values, pa.Array) else pa.array(values, kind))
        return pa.table(columns, schema=self._schema)

    def _hashes(self, count: int) -> np.ndarray:
        """Far from each other, but for a few that differ from their neighbour in two bits."""
        hashes = self._rng.integers(-(2**63), 2**63 - 1, count)
        near = self._rng.random(count - 1) < NEAR
        bits = (1 << self._rng.integers(0, 63, count - 1)) | (1 << self._rng.integers(0, 63, count - 1))
        hashes[1:][near] = hashes[:-1][near] ^ bits[near]
        return hashes


def _add_to_manifest(con: Any, run: RunDir, path: Path, number: int, rows: int) -> None:
    entry = {
        "dataset": path.parent.name, "number": number, "path": os.path.relpath(path, run.root), "rows": rows,
        "prompt_tokens": 80 * rows,
        "completion_tokens": 0, "reasoning_tokens": 0, "rejected": 0, "truncated": 0, "bytes": path.stat().st_size,
        "sha256": hashlib.sha256(path.read_bytes()).hexdigest(), "first_finished_at": AT_US / 1e6,
        "last_finished_at": AT_US / 1e6 + 40_000, "sealed_at": time.time(),
    }  # fmt: skip
    con.execute(f"INSERT INTO sealed_shards ({', '.join(entry)}) VALUES ({', '.join('?' * len(entry))})", tuple(entry.values()))
