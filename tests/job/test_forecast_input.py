"""What a forecaster is told of a dataset is what its accounts say."""

from __future__ import annotations

import time
from dataclasses import replace

from backend.job.forecast_input import UNLIMITED, dataset_now
from backend.job.wishes import Want
from backend.records import DatasetState
from tests.job.dataset_job import Job


async def test_lengths_and_limits_are_those_of_the_accounts(job: Job) -> None:
    await job.finish(completion_tokens=40)
    prompt = job.runner.take()
    job.runner.started(prompt)
    now = dataset_now(job.runner, job.wishes.datasets["A"], time.monotonic())
    assert (now.name, now.state, now.prompts) == ("A", DatasetState.RUNNING, 2)
    assert (now.finished_samples, now.finished_tokens, now.in_flight.total) == (1, 40, 1)


async def test_refused_prompts_are_spent_and_have_no_length(job: Job) -> None:
    await job.finish(completion_tokens=0, finish_reason="rejected", error="no")
    now = dataset_now(job.runner, job.wishes.datasets["A"], time.monotonic())
    assert (now.prompts, now.finished_samples) == (1, 0)


async def test_a_dataset_whose_turn_has_not_come_is_waiting_also_with_its_pilot_in_flight(job: Job) -> None:
    job.runner.started(job.runner.take(), pilot=True)
    now = dataset_now(job.runner, job.wishes.datasets["A"], time.monotonic())
    assert now.state is DatasetState.WAITING


async def test_what_is_to_pause_or_has_no_prompt_left_only_finishes(job: Job) -> None:
    job.runner.started(job.runner.take())
    pausing = replace(job.wishes.datasets["A"], want=Want.PAUSED)
    assert dataset_now(job.runner, pausing, 0.0).state is DatasetState.DRAINING
    job.runner.take()
    job.runner.take()
    now = dataset_now(job.runner, job.wishes.datasets["A"], time.monotonic())
    assert (now.state, now.prompts) == (DatasetState.DRAINING, 1)


async def test_without_a_limit_there_is_no_end_to_the_samples(job: Job) -> None:
    unlimited = replace(job.wishes.datasets["A"], max_samples=None)
    assert dataset_now(job.runner, unlimited, 0.0).prompts == 3
    job.runner._files = []
    assert dataset_now(job.runner, unlimited, 0.0).prompts == UNLIMITED
