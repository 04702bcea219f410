"""A million samples of 1 to 2 kB exported by `python -m backend export`: memory at most, and how long it takes."""

from __future__ import annotations

import hashlib
import random
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path
from typing import Any, Final

import psutil
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from backend.rows import COLUMNS, arrow_schema
from backend.run_dir import RunDir, open_ledger
from tests.bench.figure import Figure, at_most, told
from tests.bench.machine import ROOT
from tests.bench.parts import use_of
from tests.made_run import make_run

ROWS: Final = 1_000_000
SHARD_ROWS: Final = 20_000
TOKENS: Final = 300  # of an answer
TARGET_MB: Final = 1_000
LOOK_EACH_S: Final = 0.05
AT_US: Final = 1_790_000_000_000_000


def measure(folder: Path) -> Iterator[Figure]:
    """Every sample differs from every other, so that all of them are remembered."""
    run = _make_run(folder)
    for words in (("--format", "messages"), ("--format", "token_ids", "--parquet")):
        what, to = " ".join(words[1:]).replace("--", "as "), folder / "out"
        began = time.monotonic()
        peak_mb = _peak_mb("export", str(run.root), "--dataset", "alpha", "--to", str(to), *words)
        took_s = time.monotonic() - began
        written_mb = sum(path.stat().st_size for path in to.iterdir()) / 1e6
        yield at_most(f"{what}: memory at most, {ROWS:,} samples (MB)", peak_mb, TARGET_MB)
        yield told(f"{what}: seconds", took_s, "{:.0f}")
        yield told(f"{what}: written (MB)", written_mb)
        for path in to.iterdir():
            path.unlink()
        to.rmdir()


def _peak_mb(*words: str) -> float:
    process = subprocess.Popen([sys.executable, "-m", "backend", *words], cwd=ROOT, stdout=subprocess.DEVNULL)
    peak_bytes = 0
    while process.poll() is None:
        with suppress(FileNotFoundError, ProcessLookupError, StopIteration, psutil.Error):  # it ended meanwhile
            peak_bytes = use_of(process.pid).peak_rss_bytes
        time.sleep(LOOK_EACH_S)
    assert process.returncode == 0
    return peak_bytes / 1e6


def _make_run(folder: Path) -> RunDir:
    run = make_run(folder)
    rng = random.Random(1)
    words = [f"word{index}" for index in range(4_000)]
    texts = pa.array([" ".join(rng.choices(words, k=rng.randrange(90, 220))) for _ in range(SHARD_ROWS)])
    ids = pa.array([[rng.randrange(1_000, 100_000) for _ in range(TOKENS)] for _ in range(SHARD_ROWS)], pa.list_(pa.int32()))
    with closing(open_ledger(run)) as con:
        for number in range(1, ROWS // SHARD_ROWS + 1):
            path = run.shard("alpha", number)
            path.parent.mkdir(exist_ok=True)
            pq.write_table(_table(number, texts, ids), path, compression="zstd", compression_level=1, row_group_size=5_000)
            entry = {
                "dataset": "alpha", "number": number, "path": str(path.relative_to(run.root)), "rows": SHARD_ROWS,
                "prompt_tokens": 0, "completion_tokens": TOKENS * SHARD_ROWS, "reasoning_tokens": 0, "rejected": 0,
                "truncated": 0, "bytes": path.stat().st_size, "sha256": hashlib.sha256(path.read_bytes()).hexdigest(),
                "first_finished_at": AT_US / 1e6, "last_finished_at": AT_US / 1e6, "sealed_at": AT_US / 1e6,
            }  # fmt: skip
            con.execute(
                f"INSERT INTO sealed_shards ({', '.join(entry)}) VALUES ({', '.join('?' * len(entry))})", tuple(entry.values())
            )
    return run


def _table(number: int, texts: pa.Array, ids: pa.Array) -> pa.Table:
    positions = pa.array(range((number - 1) * SHARD_ROWS, number * SHARD_ROWS), pa.int64())
    names = positions.cast(pa.string())
    own = {
        "position": positions,
        "sample_id": names,
        "answer": pc.binary_join_element_wise(names, texts, " "),
        "messages": pc.binary_join_element_wise('{"messages": [{"role": "user", "content": "Tell me of ', names, '"}]}', ""),
        "prompt_token_ids": pa.ListArray.from_arrays(pa.array(range(SHARD_ROWS + 1), pa.int32()), positions.cast(pa.int32())),
        "output_ids": ids,
    }
    same: dict[str, Any] = {
        "dataset": "alpha", "turn": 0, "attempt": 1, "source": "local", "model": "m", "completion_tokens": TOKENS,
        "finish_reason": "stop", "answer_tokens": TOKENS, "tokens_estimated": False, "started_at": AT_US, "finished_at": AT_US,
    }  # fmt: skip
    schema = arrow_schema()
    columns = [
        own[name] if name in own else pa.repeat(pa.scalar(same.get(name), schema.field(name).type), SHARD_ROWS)
        for name in COLUMNS
    ]
    return pa.table(columns, schema=schema)
