"""What is, for deciding and for people."""

from __future__ import annotations

from dataclasses import replace

import pytest

from backend.job.rates import Window
from backend.job.situation import dataset_status, job_status, observed
from backend.job.wishes import Want, Wishes
from backend.records import DatasetState, DoneReason, RunPhase
from tests.job.dataset_job import Job


async def test_a_dataset_is_seen_with_what_is_in_flight_and_which_limit_holds(job: Job) -> None:
    def seen() -> tuple[int, DoneReason | None, bool, bool]:
        one = observed(RunPhase.RUNNING, [], job.runners, checking=False, drain_overdue=False).datasets[0]
        return one.in_flight, one.limit, one.exhausted, one.admits

    assert seen() == (0, None, False, True)
    first, second = job.runner.take(), job.runner.take()
    job.runner.started(first)
    job.runner.started(second)
    assert seen() == (2, None, False, False)
    job.runner.ended_without_sample(first)
    job.runner.ended_without_sample(second)
    await job.finish()
    await job.finish()
    assert seen() == (0, DoneReason.SAMPLES, False, False)


async def test_people_see_the_ledgers_counts_and_the_limits_as_wished(job: Job) -> None:
    await job.finish(completion_tokens=4, prompt_tokens=3)
    await job.finish(completion_tokens=0, prompt_tokens=None, finish_reason="rejected", error="no")
    job.runner.note_retry("busy", 1.0)
    status = dataset_status(job.runner, job.ledger, job.wishes)
    assert (status.finished_samples, status.completion_tokens, status.prompt_tokens, status.rejected) == (2, 4, 3, 1)
    assert (status.retries, status.prompts, status.max_samples, status.token_budget) == (1, 3, 2, None)


@pytest.mark.parametrize(
    ("state", "want", "wanted"),
    [
        (DatasetState.RUNNING, Want.RUNNING, None),
        (DatasetState.DRAINING, Want.PAUSED, DatasetState.PAUSED),
        (DatasetState.PAUSED, Want.PAUSED, None),
        (DatasetState.PAUSED, Want.RUNNING, DatasetState.RUNNING),
        (DatasetState.RUNNING, Want.KILLED, DatasetState.KILLED),
        (DatasetState.KILLED, Want.RUNNING, DatasetState.RUNNING),
        (DatasetState.DONE, Want.KILLED, None),
        (DatasetState.FAILED, Want.PAUSED, None),
    ],
)
async def test_what_is_wanted_is_shown_until_it_is_so(
    job: Job, state: DatasetState, want: Want, wanted: DatasetState | None
) -> None:
    job.runner.state = state
    assert dataset_status(job.runner, job.ledger, job.wanting(want)).wanted is wanted


async def test_the_runs_status_follows_the_wished_order_and_knows_no_rate_at_first(job: Job) -> None:
    lately = Window(60.0)

    def status(wishes: Wishes) -> tuple[tuple[str, ...], float | None, float | None, float | None]:
        said = job_status(
            RunPhase.RUNNING, wishes, keepers=[], runners=job.runners, ledger=job.ledger, lately=lately,
            admission_stopped=None, prometheus_url=None, exit_code=None,
        )  # fmt: skip
        names = tuple(dataset.name for dataset in said.datasets)
        return names, said.tokens_per_s, said.requests_per_s, said.mean_completion_tokens

    assert status(job.wishes) == (("A", "B"), None, None, None)
    lately.add(0.0, 0, 0, 0)
    lately.add(10.0, 0, 0, 0)
    assert status(replace(job.wishes, order=("B", "A"))) == (("B", "A"), 0.0, 0.0, None)
    lately.add(20.0, 10, 4000, 8)
    assert status(job.wishes)[1:] == (200.0, 0.5, 500.0)
