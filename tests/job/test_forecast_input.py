"""What a forecaster is told of a dataset is what its accounts say."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path

from backend.job.forecast_input import UNLIMITED, dataset_now
from backend.job.ledger import Ledger
from backend.job.wishes import Want, initial
from backend.records import DatasetState
from tests.job.dataset_job import Job
from tests.job.made_job import make_config, make_run_dir, make_runners
from tests.sample_rows import make_row


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


async def test_turns_that_follow_those_in_flight_are_still_to_be_made(tmp_path: Path) -> None:
    said = [{"role": role, "content": "x"} for role in ("user", "assistant") * 10]
    config = make_config(tmp_path, {"A": [{"id": f"c{n}", "messages": said} for n in range(3)]}, dataset={"turns": "all"})
    ledger = Ledger.open(make_run_dir(tmp_path))
    runner, wish = make_runners(config, ledger)["A"], initial(config).datasets["A"]
    await runner.read_ahead(10)
    prompts = [runner.take() for _ in range(3)]
    for prompt in prompts:
        runner.started(prompt)
    now = dataset_now(runner, wish, time.monotonic())
    assert (now.state, now.prompts) == (DatasetState.RUNNING, 30)
    assert dataset_now(runner, replace(wish, max_samples=7), time.monotonic()).prompts == 7
    runner.finished(prompts[0], make_row(0, dataset="A", sample_id=prompts[0].sample_id, finish_reason="rejected"), None)
    runner.ended_without_sample(prompts[1])
    runner.take()
    assert runner.turns_to_come == 9  # the first conversation has ended, the second one waits
    await ledger.close()
