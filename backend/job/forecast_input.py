"""The datasets as a forecaster wants them: lengths of what is finished, tokens made by what is in flight, limits as they are.

Made from the live accounts of `dataset_runner.py` and from what is wanted; asks nobody.
"""

from __future__ import annotations

from typing import Final

from backend.forecast.observation import DatasetNow, count_dataset
from backend.job.dataset_runner import DatasetRunner
from backend.job.wishes import DatasetWish, Want
from backend.records import DatasetState

UNLIMITED: Final = 10**9  # samples, where only a budget bounds a dataset
ADMITTING: Final = frozenset({DatasetState.WAITING, DatasetState.RUNNING, DatasetState.DRAINING})


def dataset_now(runner: DatasetRunner, wish: DatasetWish, clock: float) -> DatasetNow:
    """One dataset as it is. `clock` is the runner's (monotonic seconds)."""
    admission = runner.admission
    lengths = +runner.lengths  # lengths that were superseded to the last one are gone
    in_flight = admission.made_tokens(clock)
    return count_dataset(
        runner.name,
        _state(runner, wish),
        prompts=_most_samples(runner, wish),
        token_budget=wish.token_budget,
        max_new_tokens=wish.max_new_tokens,
        finished_lengths=list(lengths),
        times=list(lengths.values()),
        in_flight_tokens=in_flight,
    )


def _state(runner: DatasetRunner, wish: DatasetWish) -> DatasetState:
    """Slots fill and drain all the time: what still may be admitted to is running, whatever is in flight just now."""
    if runner.state not in ADMITTING:
        return runner.state
    if wish.want is not Want.RUNNING or not runner.open:
        return DatasetState.DRAINING
    if runner.exhausted and not runner.turns_to_come:
        return DatasetState.DRAINING
    return DatasetState.RUNNING if runner.turn_has_come else DatasetState.WAITING


def _most_samples(runner: DatasetRunner, wish: DatasetWish) -> int:
    """That a model will have answered: refused prompts are spent, and make no tokens."""
    rejected = runner.admission.finished_samples - runner.lengths.total()
    begun = runner.lengths.total() + runner.admission.in_flight
    if runner.state is DatasetState.DONE:
        return begun
    prompts = runner.expected_samples
    if runner.exhausted:  # each conversation goes on once its turn in flight is answered
        prompts = begun + runner.turns_to_come + rejected
    limits = [limit for limit in (prompts, wish.max_samples) if limit is not None]
    return max(min(limits, default=UNLIMITED) - rejected, begun)
