"""How quick questions about 914,000 finished samples are, and whether the ledger's commits wait for them.

Cold: a process of its own that has imported what the dashboard imports, files in the system's cache; the first question reads
what is kept in memory. Warm: nothing was sealed since, but 200 samples have finished before each question.
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Final

from backend.records import Row
from backend.report.long_question import LongQuestion
from backend.report.questions import BY_NAME, QUESTIONS, ask, begin, defaults
from backend.report.sample_finder import Wanted, begin_search
from backend.rows import COLUMNS, record_from_row
from backend.run_dir import RunDir, open_ledger
from tests.bench.figure import Figure, at_most, told
from tests.bench.written_run import AT_US, NEEDLE, NEEDLE_EVERY, ROWS, make_written_run, repeat_shards
from tests.finished_samples import add_open, sample

QUICK: Final = [question for question in QUESTIONS if not question.long]
COLD_MS, WARM_MS, LONG_S, MANY_S = 400, 100, 8, 2
COLD_TRIES: Final = 3
OPEN_ROWS: Final = 200
_COLD: Final = """
import json, sys, time
import duckdb, pandas, pyarrow, streamlit
import backend.report.live, backend.config
from pathlib import Path
from backend.report.questions import BY_NAME, ask, defaults
from backend.run_dir import RunDir
began = time.perf_counter()
question = BY_NAME[sys.argv[2]]
rows = ask(RunDir(Path(sys.argv[1])), question, defaults(question))
print(json.dumps([time.perf_counter() - began, len(rows)]))
"""


def measure(folder: Path) -> Iterator[Figure]:
    """Makes the run, then asks everything of it."""
    began = time.monotonic()
    run = make_written_run(folder / "written")
    shards = list(run.shards.glob("*/*.parquet"))
    yield told(f"{ROWS:,} rows in {len(shards)} shards (GB)", sum(p.stat().st_size for p in shards) / 1e9, "{:.2f}")
    yield told("made in (s)", time.monotonic() - began)
    cold = {q.name: min(_cold_ms(run, q.name) for _ in range(COLD_TRIES)) for q in QUICK}
    yield told("cold, the median question (ms)", statistics.median(cold.values()))
    slowest = max(cold, key=lambda name: cold[name])
    yield at_most(f"cold, the slowest of {len(cold)}: {slowest} (ms)", cold[slowest], COLD_MS)
    warm = {q.name: _warm_ms(run, q.name, first) for first, q in zip(range(0, 10**9, 10_000), QUICK, strict=False)}
    yield told("warm, the median question (ms)", statistics.median(warm.values()))
    slowest = max(warm, key=lambda name: warm[name])
    yield at_most(f"warm, the slowest of {len(warm)}: {slowest} (ms)", warm[slowest], WARM_MS)
    yield from _long(run)
    yield from _many(folder, run)
    yield from _commits(run)


def _cold_ms(run: RunDir, name: str) -> float:
    command = [sys.executable, "-c", _COLD, str(run.root), name]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
    return float(json.loads(done.stdout)[0]) * 1000


def _warm_ms(run: RunDir, name: str, first: int) -> float:
    question, took = BY_NAME[name], []
    ask(run, question, defaults(question))
    for i in range(3):
        add_open(run, [_fresh(first + OPEN_ROWS * i + k) for k in range(OPEN_ROWS)])
        began = time.perf_counter()
        ask(run, question, defaults(question))
        took.append(time.perf_counter() - began)
    return statistics.median(took) * 1000


def _fresh(number: int) -> Row:
    """A sample that finishes as the run's last ones do."""
    return sample(10_000_000 + number, started_at=AT_US / 1e6 + 36_000, finished_at=AT_US / 1e6 + 36_060)


def _long(run: RunDir) -> Iterator[Figure]:
    search = begin_search(run, Wanted(text=NEEDLE.upper()))
    took_s, rows = _answered(search)
    expected = -(-ROWS // NEEDLE_EVERY)
    assert rows == expected, f"{rows} samples were found instead of {expected}"
    yield at_most("search in every text, whatever the case (s)", took_s, LONG_S, "{:.1f}")
    for name in ("near_duplicates", "duplicate_prompts", "duplicate_answers"):
        took_s, rows = _answered(begin(run, BY_NAME[name], defaults(BY_NAME[name])))
        yield at_most(f"{BY_NAME[name].title.lower()} (s)", took_s, LONG_S, "{:.1f}")
    search = begin_search(run, Wanted(text=NEEDLE))
    search.wait(1.0)
    began = time.perf_counter()
    search.cancel()
    search.wait(30)
    yield at_most("a search is gone after Cancel (s)", time.perf_counter() - began, 1, "{:.2f}")


def _answered(question: LongQuestion) -> tuple[float, int]:
    question.wait(120)
    result = question.result()
    return result.took_s, result.table.num_rows


def _many(folder: Path, run: RunDir) -> Iterator[Figure]:
    times = -(-10_000_000 // ROWS)
    many = repeat_shards(folder / "many", run, times)
    took_s = min(_cold_ms(many, "length_distribution") for _ in range(COLD_TRIES)) / 1000
    yield at_most(f"length histogram of {ROWS * times / 1e6:.1f}M rows, cold (s)", took_s, MANY_S, "{:.2f}")


def _commits(run: RunDir) -> Iterator[Figure]:
    """The time of a commit of 10 samples, without and with questions that are asked all the time."""
    calm = _commit_times(run, 1_000_000, 100)
    ended = threading.Event()

    def keep_asking() -> None:
        while not ended.is_set():
            search = begin_search(run, Wanted(text=NEEDLE))
            for question in QUICK:
                ask(run, question, defaults(question))
            search.wait(60)

    asking = threading.Thread(target=keep_asking)
    asking.start()
    busy = _commit_times(run, 2_000_000, 100)
    ended.set()
    asking.join(120)
    yield told("commit of 10 samples, nobody asks: the slowest of 100 (ms)", max(calm) * 1000, "{:.0f}")
    yield told("commit of 10 samples, questions all the time: the median (ms)", statistics.median(busy) * 1000, "{:.1f}")
    yield at_most("the slowest of 100 (ms)", max(busy) * 1000, 200)


def _commit_times(run: RunDir, first: int, count: int) -> list[float]:
    statement = f"INSERT INTO stored_rows ({', '.join(COLUMNS)}) VALUES ({', '.join('?' * len(COLUMNS))})"
    took = []
    with closing(open_ledger(run)) as con:
        con.execute("PRAGMA busy_timeout = 0")  # who would have to wait for somebody else's lock fails
        for i in range(count):
            records = [record_from_row(_fresh(first + 10 * i + k)) for k in range(10)]
            began = time.perf_counter()
            con.execute("BEGIN IMMEDIATE")
            con.executemany(statement, records)
            con.execute("COMMIT")
            took.append(time.perf_counter() - began)
            time.sleep(0.05)
    return took
