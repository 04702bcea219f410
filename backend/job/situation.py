"""What is, in two forms made from the same live objects: `observed` for `reconcile.py`, `status` for people."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from backend.job import reconcile as plan
from backend.job.dataset_runner import DatasetRunner
from backend.job.ledger import Ledger
from backend.job.rates import Window
from backend.job.replica_keeper import ReplicaKeeper
from backend.job.wishes import DatasetWish, Want, Wishes
from backend.records import ApiStatus, DatasetState, DatasetStatus, JobStatus, RunPhase

_MEANT = {Want.PAUSED: DatasetState.PAUSED, Want.KILLED: DatasetState.KILLED}


def observed(
    phase: RunPhase,
    keepers: Sequence[ReplicaKeeper],
    runners: Mapping[str, DatasetRunner],
    *,
    checking: bool,
    drain_overdue: bool,
    apis_work: bool = False,
) -> plan.Observed:
    """The whole run as `reconcile` wants it."""
    return plan.Observed(
        phase=phase,
        replicas=tuple(keeper.observed() for keeper in keepers),
        datasets=tuple(_observed_dataset(runner) for runner in runners.values()),
        checking=checking,
        drain_overdue=drain_overdue,
        apis_work=apis_work,
    )


def job_status(
    phase: RunPhase,
    wishes: Wishes,
    *,
    keepers: Sequence[ReplicaKeeper],
    runners: Mapping[str, DatasetRunner],
    ledger: Ledger,
    lately: Window,
    admission_stopped: str | None,
    prometheus_url: str | None,
    exit_code: int | None,
    apis: tuple[ApiStatus, ...] = (),
) -> JobStatus:
    """The whole run as people want it. `lately` counts samples, completion tokens and samples that a model answered."""
    differences, rates = lately.differences(), lately.rates()
    answered = differences[1][2] if differences else 0.0
    return JobStatus(
        phase=phase,
        concurrency=wishes.concurrency,
        in_flight=sum(runner.in_flight for runner in runners.values()),
        datasets=tuple(dataset_status(runners[name], ledger, wishes) for name in wishes.order),
        replicas=tuple(keeper.status() for keeper in keepers),
        order=wishes.order,
        tokens_per_s=rates[1] if rates else None,
        requests_per_s=rates[0] if rates else None,
        mean_completion_tokens=differences[1][1] / answered if differences and answered else None,
        admission_stopped=admission_stopped,
        prometheus_url=prometheus_url,
        deadline=wishes.deadline,
        exit_code=exit_code,
        apis=apis,
    )


def dataset_status(runner: DatasetRunner, ledger: Ledger, wishes: Wishes) -> DatasetStatus:
    """One dataset as people want it."""
    totals, wish = ledger.totals(runner.name), wishes.datasets[runner.name]
    return DatasetStatus(
        name=runner.name,
        state=runner.state,
        wanted=_wanted(runner.state, wish),
        reason=runner.reason,
        finished_samples=totals.samples,
        completion_tokens=totals.completion_tokens,
        prompt_tokens=totals.prompt_tokens,
        rejected=totals.rejected,
        in_flight=runner.in_flight,
        retries=runner.retries,
        bad_lines=runner.bad_line_count,
        prompts=runner.prompts,
        token_budget=wish.token_budget,
        max_samples=wish.max_samples,
        max_new_tokens=wish.max_new_tokens,
        route=str(wish.route),
    )


def _observed_dataset(runner: DatasetRunner) -> plan.ObservedDataset:
    return plan.ObservedDataset(
        name=runner.name,
        state=runner.state,
        in_flight=runner.admission.in_flight,
        limit=runner.limit_reached(),
        exhausted=runner.exhausted,
        admits=runner.may_admit(),
        fault=runner.fault,
        in_pilot=runner.in_pilot,
        hold=runner.held_for,
        reason=runner.reason,
    )


def _wanted(state: DatasetState, wish: DatasetWish) -> DatasetState | None:
    """What was asked and is not yet so."""
    meant = _MEANT.get(wish.want)
    if meant is not None:
        return None if state is meant or state in (DatasetState.DONE, DatasetState.FAILED) else meant
    return DatasetState.RUNNING if state in (DatasetState.PAUSED, DatasetState.KILLED) else None
