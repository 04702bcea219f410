"""A run as people see it: its ledger says what is done, the last heartbeat what goes on, the lock whether somebody works.

What comes out is told in `views.py`; `status_text.py` puts it into words.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, Final

from backend.config import Turns
from backend.heartbeat import (
    Heartbeat,
    SupervisorState,
    has_table,
    observe,
    reading,
    state_of_lock,
    supervisor_pid,
    supervisor_words,
)
from backend.records import DatasetStatus
from backend.report.counts import Counts, read_counts
from backend.report.views import DatasetView, EventView, RunView, SupervisorView, TotalsView
from backend.run_dir import RunDir, RunDirError

if TYPE_CHECKING:
    from backend.config import DatasetConfig, RunConfig

EVENTS_SHOWN: Final = 5


def read_status(run: RunDir, now: float, *, counted: bool = True, settings: RunConfig | None = None) -> RunView:
    """Everything about a run; `now` in epoch seconds. A lost state.sqlite or ledger becomes a note and missing figures.

    Counting the ledger anew takes long where many rows are open: without `counted`, a living supervisor's last word counts.
    `settings`: run.toml, where the caller has it.

    Raises:
        ConfigError: run.toml cannot be read.
        RunDirError: the lock cannot be looked at.
    """
    from backend import config

    settings = settings or config.load(run.config)
    notes: list[str] = []
    supervisor, heartbeat = _read_supervisor(run, now, notes)
    if not counted and heartbeat is not None and supervisor.state is SupervisorState.ALIVE:
        counts: dict[str, Counts] | None = _counts_as_said(heartbeat)
    else:
        counts = _read_counts(run, supervisor, notes)
    events, unanswered = _read_state(run, notes)
    said = heartbeat.status if heartbeat else None
    if supervisor.state is SupervisorState.ALIVE and (words := supervisor_words(run)) is not None:
        notes.append(f"What is told here is old: the supervisor lives and cannot write how it goes. {words}")
    datasets = _datasets(settings, said.datasets if said else (), said.order if said else (), counts)
    return RunView(
        name=run.name,
        path=str(run.root),
        at=now,
        model=settings.model.served_name or settings.model.path,
        engine_kind=settings.engine.kind.value,
        created_at=settings.frozen.created_at if settings.frozen else None,
        fingerprint=settings.frozen.fingerprint if settings.frozen else None,
        phase=heartbeat.phase if heartbeat else None,
        supervisor=supervisor,
        totals=_totals(datasets),
        datasets=datasets,
        replicas=said.replicas if said else (),
        apis=said.apis if said else (),
        concurrency=said.concurrency if said else settings.generation.concurrency,
        in_flight=said.in_flight if said else None,
        tokens_per_s=said.tokens_per_s if said else None,
        requests_per_s=said.requests_per_s if said else None,
        admission_stopped=said.admission_stopped if said else None,
        prometheus_url=said.prometheus_url if said else None,
        deadline=said.deadline if said else _deadline(settings),
        exit_code=said.exit_code if said else None,
        unanswered_intents=unanswered,
        events=events,
        notes=tuple(notes),
    )


def _deadline(settings: RunConfig) -> str | None:
    deadline = settings.forecast.deadline
    return deadline.isoformat(timespec="seconds") if deadline else None


def to_json(views: Any) -> str:
    """Views, also within lists and dicts, as indented JSON; text is ASCII, so that no terminal is steered by it."""
    return json.dumps(views, default=asdict, indent=2).replace("\x7f", "\\u007f")


def _read_supervisor(run: RunDir, now: float, notes: list[str]) -> tuple[SupervisorView, Heartbeat | None]:
    try:
        state, heartbeat = observe(run, now)
    except RunDirError as error:
        notes.append(str(error))
        state, heartbeat = state_of_lock(run, now), None
    pid = supervisor_pid(run) if state in (SupervisorState.ALIVE, SupervisorState.NOT_ANSWERING) else None
    if heartbeat is None:
        return SupervisorView(state, pid), None
    return SupervisorView(state, pid, heartbeat.life, heartbeat.at, max(0.0, now - heartbeat.at)), heartbeat


def _read_counts(run: RunDir, supervisor: SupervisorView, notes: list[str]) -> dict[str, Counts] | None:
    """None where they cannot be known; without a ledger nothing is done only if no supervisor ever worked."""
    try:
        counts = read_counts(run)
    except RunDirError as error:
        notes.append(str(error))
        return None
    if counts is not None:
        if not any(c.finished_samples or c.superseded_samples for c in counts.values()) and any(run.shards.glob("*/*.parquet")):
            notes.append(
                f"{run.ledger} names none of the files in {run.shards}: it was lost or replaced, and the counts here are not "
                f"those of the run. Restore it before the run is started again."
            )
        return counts
    starting = supervisor.state is SupervisorState.ALIVE and supervisor.heartbeat_at is None
    if supervisor.state is SupervisorState.NEVER_STARTED or starting:
        return {}
    notes.append(f"{run.ledger} is missing: what is finished cannot be told. Restore it before the run is started again.")
    return None


def _counts_as_said(heartbeat: Heartbeat) -> dict[str, Counts]:
    return {
        d.name: Counts(d.finished_samples, d.prompt_tokens, d.completion_tokens, d.rejected, None)
        for d in heartbeat.status.datasets
    }


def _read_state(run: RunDir, notes: list[str]) -> tuple[tuple[EventView, ...], int]:
    try:
        with reading(run.state) as con:
            if con is None or not all(has_table(con, name) for name in ("events", "intents", "intent_answers")):
                return (), 0
            rows = con.execute(
                "SELECT at, kind, subject, severity, message, who FROM events ORDER BY id DESC LIMIT ?", (EVENTS_SHOWN,)
            ).fetchall()
            (waiting,) = con.execute(
                "SELECT COUNT(*) FROM intents WHERE id NOT IN (SELECT intent_id FROM intent_answers)"
            ).fetchone()
    except RunDirError as error:
        if str(error) not in notes:
            notes.append(str(error))
        return (), 0
    return tuple(EventView(*row) for row in reversed(rows)), waiting


def _datasets(
    settings: RunConfig, said: Iterable[DatasetStatus], order: tuple[str, ...], counts: dict[str, Counts] | None
) -> tuple[DatasetView, ...]:
    by_name = {d.name: d for d in said}
    place = {name: i for i, name in enumerate(order)}
    ordered = sorted(settings.datasets, key=lambda d: place.get(d.name, len(place)))
    records = {
        name: sum(f.records for f in files) for name, files in (settings.frozen.prompt_files if settings.frozen else {}).items()
    }
    return tuple(
        _dataset(
            d,
            by_name.get(d.name),
            None if counts is None else counts.get(d.name, Counts()),
            records.get(d.name),
            settings.sampling_for(d).max_new_tokens,
        )
        for d in ordered
    )


def _dataset(
    settings: DatasetConfig, said: DatasetStatus | None, counts: Counts | None, records: int | None, cap: int | None
) -> DatasetView:
    max_samples = said.max_samples if said else settings.max_samples
    prompts = said.prompts if said else None
    if prompts is None and settings.turns is Turns.LAST:
        prompts = records
    limits = [n for n in (prompts, max_samples) if n is not None]
    answered = counts.finished_samples - counts.rejected if counts else 0
    return DatasetView(
        name=settings.name,
        state=said.state if said else None,
        wanted=said.wanted if said else None,
        reason=said.reason if said else None,
        finished_samples=counts.finished_samples if counts else None,
        total_samples=min(limits) if limits else None,
        prompts=prompts,
        max_samples=max_samples,
        max_new_tokens=said.max_new_tokens if said else cap,
        route=said.route if said else "local",
        completion_tokens=counts.completion_tokens if counts else None,
        token_budget=said.token_budget if said else settings.token_budget,
        prompt_tokens=counts.prompt_tokens if counts else None,
        mean_completion_tokens=counts.completion_tokens / answered if counts and answered > 0 else None,
        rejected=counts.rejected if counts else None,
        superseded_samples=counts.superseded_samples if counts else None,
        in_flight=said.in_flight if said else None,
        retries=said.retries if said else None,
        bad_lines=said.bad_lines if said else None,
    )


def _totals(datasets: tuple[DatasetView, ...]) -> TotalsView:
    def total(values: Iterable[int | None]) -> int | None:
        known = [v for v in values if v is not None]
        return sum(known) if len(known) == len(datasets) else None

    return TotalsView(
        finished_samples=total(d.finished_samples for d in datasets),
        completion_tokens=total(d.completion_tokens for d in datasets),
        prompt_tokens=total(d.prompt_tokens for d in datasets),
        rejected=total(d.rejected for d in datasets),
    )
