"""Gives up shards that are lost for good: `python -m backend.job.give_up RUN_DIR`. Their samples are generated again.

Nothing does this by itself: a disk that is not mounted looks the same, and hours of work would be thrown away.
"""

from __future__ import annotations

import argparse
import fcntl
import json
import os
import sqlite3
import sys
import time
from contextlib import closing
from pathlib import Path

import pyarrow.parquet as pq

from backend.job.ledger_recovery import lost_shards
from backend.run_dir import RunDir, RunDirError, open_ledger


def give_up_lost_shards(run: RunDir) -> list[str]:
    """Takes lost shards out of the manifest, in one transaction; words for each. What was given up is kept as a fact.

    Raises RunDirError while a supervisor works on the run.
    """
    if not run.ledger.exists():
        raise RunDirError(f"{run.ledger} does not exist: the run was never started.")
    lock = os.open(run.lock, os.O_RDWR | os.O_CREAT, 0o644)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        with closing(open_ledger(run)) as con:
            return _give_up(run, con)
    except BlockingIOError:
        raise RunDirError(f"{run.root}: a supervisor works on this run. Stop it first.") from None
    finally:
        os.close(lock)


def _give_up(run: RunDir, con: sqlite3.Connection) -> list[str]:
    lost = lost_shards(run, con)
    con.execute("BEGIN IMMEDIATE")
    try:
        for shard, _ in lost:
            con.execute("DELETE FROM sealed_shards WHERE dataset = ? AND number = ?", (shard["dataset"], shard["number"]))
            fact = (f"given_up:{shard['path']}:{time.time():.0f}", json.dumps(dict(shard)))
            con.execute("INSERT OR REPLACE INTO facts VALUES (?, ?)", fact)
        for dataset in {shard["dataset"] for shard, _ in lost}:
            _forget_superseded(run, con, dataset)
        con.execute("COMMIT")
    except BaseException:
        con.execute("ROLLBACK")
        raise
    for shard, _ in lost:  # a shard that was cut would otherwise stand in the way of the next one of its number
        path = run.root / shard["path"]
        if path.exists():
            path.rename(path.with_name(path.name + ".given_up"))
    return [words for _, words in lost]


def _forget_superseded(run: RunDir, con: sqlite3.Connection, dataset: str) -> None:
    # A superseded row counts as minus one against the shard that holds it; without the shard it must not count at all.
    keys = {tuple(row) for row in con.execute("SELECT sample_id, turn, attempt FROM superseded WHERE dataset = ?", (dataset,))}
    if not keys:
        return
    kept = {tuple(row) for row in con.execute("SELECT sample_id, turn, attempt FROM open_rows WHERE dataset = ?", (dataset,))}
    for (path,) in con.execute("SELECT path FROM sealed_shards WHERE dataset = ?", (dataset,)).fetchall():
        with pq.ParquetFile(run.root / path) as file:
            table = file.read(columns=["sample_id", "turn", "attempt"])
        kept.update(zip(*(table[name].to_pylist() for name in ("sample_id", "turn", "attempt")), strict=True))
    con.executemany(
        "DELETE FROM superseded WHERE dataset = ? AND sample_id = ? AND turn = ? AND attempt = ?",
        [(dataset, *key) for key in keys - kept],
    )


def main() -> int:
    """The command. Exit codes: 0 done, 1 refused with the reason, 2 wrong usage."""
    parser = argparse.ArgumentParser(prog="python -m backend.job.give_up", description=__doc__)
    parser.add_argument("run", type=Path, help="the run's folder")
    try:
        given_up = give_up_lost_shards(RunDir(parser.parse_args().run))
    except (RunDirError, OSError, sqlite3.Error) as error:
        print(error, file=sys.stderr)
        return 1
    for words in given_up:
        print(f"given up: {words}")
    print(f"{len(given_up)} shards were given up." if given_up else "No shard is lost.")
    return 0


if __name__ == "__main__":
    sys.exit(main())
