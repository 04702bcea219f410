"""How close tokens come to a budget: 20 seeds, 150 in flight, log-normal lengths (mean 2,000, log-sd 1), in simulated time."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from statistics import mean

from tests.bench.figure import Figure, at_most, told
from tests.job.test_admission import CASES, run_alone

SEEDS = 20
JUDGED = "10M, log-sd 1"
TOLD = ("10M, log-sd 1, speed not told", "1M, log-sd 1")  # `make drill` prints all cases
TARGET = 0.01


def measure(folder: Path) -> Iterator[Figure]:
    """Mean |tokens / budget - 1| of cases that the tests of admission know; nothing is written to `folder`."""
    for name in (JUDGED, *TOLD):
        errors = [run_alone(CASES[name], seed)[0] for seed in range(SEEDS)]
        what, error = f"budget {name}: mean |tokens ÷ budget - 1|", mean(map(abs, errors))
        yield at_most(what, error, TARGET, "{:.2%}") if name == JUDGED else told(what, error, "{:.2%}")
