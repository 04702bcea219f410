"""`python -m tests.bench [NAME...]`: machine, commit, then a line a figure. Exit code 1 where one misses its target."""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from tests.bench import (
    against_sglang,
    api,
    budgets,
    dashboard,
    data,
    export,
    forecast,
    full_slots,
    judging,
    many_in_flight,
    resumption,
    supervisor_cpu,
    throughput,
)
from tests.bench.figure import Figure, SkippedError
from tests.bench.machine import machine_lines

BENCHES: dict[str, Callable[[Path], Iterator[Figure]]] = {
    "throughput": throughput.measure,
    "in-flight": many_in_flight.measure,
    "slots": full_slots.measure,
    "sglang": against_sglang.measure,
    "resumption": resumption.measure,
    "supervisor-cpu": supervisor_cpu.measure,
    "budgets": budgets.measure,
    "api": api.measure,
    "dashboard": dashboard.measure,
    "data": data.measure,
    "forecast": forecast.measure,
    "judging": judging.measure,
    "export": export.measure,
}


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.bench", description="What Headway reaches on this machine.")
    parser.add_argument("name", nargs="*", help=f"one of {', '.join(BENCHES)}; without any: all")
    names = parser.parse_args().name or list(BENCHES)
    if unknown := [name for name in names if name not in BENCHES]:
        parser.error(f"unknown: {', '.join(unknown)}. There are {', '.join(BENCHES)}.")
    print("\n".join(machine_lines()), flush=True)
    missed = 0
    for name in names:
        missed += _bench(name)
    print(f"\n{missed} figures miss their target." if missed else "\nEvery figure reaches its target.")
    return 1 if missed else 0


def _bench(name: str) -> int:
    print(f"\n{name}", flush=True)
    began, missed = time.monotonic(), 0
    with tempfile.TemporaryDirectory(prefix="headway-bench-") as folder:
        try:
            for figure in BENCHES[name](Path(folder)):
                print(figure.line(), flush=True)
                missed += figure.reached is False
        except SkippedError as reason:
            print(f"  skipped: {reason}")
    print(f"  took {time.monotonic() - began:.0f} s")
    return missed


if __name__ == "__main__":
    sys.exit(main())
