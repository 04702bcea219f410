"""A run with 914,000 prompts of which 900,000 are finished, made without generating: prompts, sealed shards, manifest."""

from __future__ import annotations

import hashlib
import os
import random
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from itertools import islice
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq

from backend.config import load
from backend.prompts import PromptReader
from backend.records import Prompt
from backend.rows import COLUMNS, arrow_schema
from backend.run_dir import RunDir, open_ledger
from tests.bench.parts import attached, write_word_problems
from tests.runs.live_run import make_run

PROMPTS: Final = 914_000
DONE: Final = 900_000
DATASET: Final = "problems"
SHARD_ROWS: Final = 20_000
TOKENS: Final = 60  # of an answer: the start reads no texts, so that longer ones would cost disk and prove nothing
AT_US: Final = 1_790_000_000_000_000


def make_finished_run(folder: Path, url: str) -> RunDir:
    """Takes about a minute. The run lies below `folder` and is attached to the server at `url`."""
    folder.mkdir(parents=True, exist_ok=True)
    write_word_problems(folder / "problems.jsonl", PROMPTS)
    dataset = {"name": DATASET, "path": "problems.jsonl"}
    run = make_run(folder, [dataset], engine=attached(url), generation={"concurrency": 150}).run
    answers = _answers()
    with closing(open_ledger(run)) as con:
        for number, chunk in enumerate(_chunks(_sample_ids(run)), start=1):
            path = run.shard(DATASET, number)
            path.parent.mkdir(exist_ok=True)
            table = _table(chunk, (number - 1) * SHARD_ROWS, answers)
            pq.write_table(table, path, compression="zstd", compression_level=1, row_group_size=5_000)
            entry = _manifest_entry(run, path, number, len(chunk))
            con.execute(
                f"INSERT INTO sealed_shards ({', '.join(entry)}) VALUES ({', '.join('?' * len(entry))})", tuple(entry.values())
            )
    return run


def _sample_ids(run: RunDir) -> Iterator[str]:
    """As the prompt reader gives them: the problems have no ids of their own, so these are hashes."""
    config = load(run.config)
    assert config.frozen is not None
    reader = PromptReader(config.dataset(DATASET), config.frozen.prompt_files[DATASET], run.root)
    return islice((prompt.sample_id for prompt in reader if isinstance(prompt, Prompt)), DONE)


def _chunks(ids: Iterator[str]) -> Iterator[list[str]]:
    while chunk := list(islice(ids, SHARD_ROWS)):
        yield chunk


def _answers() -> pa.Table:
    """Texts and ids of one shard, used in every one: only the ids of the samples tell them apart."""
    rng = random.Random(1)
    words = [f"w{index}" for index in range(4_000)]
    ids = [[rng.randrange(1_000, 100_000) for _ in range(TOKENS)] for _ in range(SHARD_ROWS)]
    texts = [" ".join(rng.choices(words, k=TOKENS)) for _ in range(SHARD_ROWS)]
    return pa.table({"ids": pa.array(ids, pa.list_(pa.int32())), "texts": pa.array(texts, pa.string())})


def _table(sample_ids: Sequence[str], first: int, answers: pa.Table) -> pa.Table:
    count = len(sample_ids)
    texts, output_ids = (answers[name].slice(0, count).combine_chunks() for name in ("texts", "ids"))
    same: Mapping[str, Any] = {
        "dataset": DATASET, "turn": 0, "attempt": 1, "source": "local", "model": "m", "prompt_tokens": 80,
        "completion_tokens": TOKENS, "finish_reason": "stop", "answer_tokens": TOKENS, "cached_tokens": 0,
        "server_epoch": "0:1", "tokens_estimated": False, "simhash": 7, "started_at": AT_US, "finished_at": AT_US + 1_000_000,
        "messages": '{"messages": [{"role": "user", "content": "?"}]}',
    }  # fmt: skip
    own = {
        "sample_id": pa.array(sample_ids, pa.string()),
        "position": pa.array(range(first, first + count), pa.int64()),
        "raw_text": texts,
        "answer": texts,
        "output_ids": output_ids,
    }
    schema = arrow_schema()
    columns = []
    for name in COLUMNS:
        kind = schema.field(name).type
        columns.append(own[name] if name in own else pa.repeat(pa.scalar(same.get(name), kind), count))
    return pa.table(columns, schema=schema)


def _manifest_entry(run: RunDir, path: Path, number: int, rows: int) -> dict[str, Any]:
    return {
        "dataset": DATASET, "number": number, "path": os.path.relpath(path, run.root), "rows": rows, "prompt_tokens": 80 * rows,
        "completion_tokens": TOKENS * rows, "reasoning_tokens": 0, "rejected": 0, "truncated": 0, "bytes": path.stat().st_size,
        "sha256": hashlib.sha256(path.read_bytes()).hexdigest(), "first_finished_at": AT_US / 1e6,
        "last_finished_at": AT_US / 1e6 + 1, "sealed_at": AT_US / 1e6 + 2,
    }  # fmt: skip
