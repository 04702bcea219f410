"""What a comparison is made from: the newest observation, what the box costs, how long prompts are.

Each value comes with words that tell where it is from. The ways out are `compare_options.py`'s.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from decimal import Decimal
from typing import Any, Final

import numpy as np

from backend.config import AtBudget, EngineKind, RunConfig
from backend.costs.case import Texts
from backend.costs.staying import Box
from backend.forecast.observation import BudgetStop, DatasetNow, LengthCounts, Observation, SpeedHistory
from backend.forecasts import Basis
from backend.heartbeat import SupervisorState, has_table, reading
from backend.records import DatasetState
from backend.report.formatting import number, plural
from backend.report.money import usd
from backend.report.series import read_lines, read_newest
from backend.report.views import RunView
from backend.run_dir import RunDir

BYTES_PER_TOKEN: Final = 4.0  # of a prompt file, markup included; for prompts of which none was sent yet
POWER_WINDOW_S: Final = 3600.0
_ADMITTING: Final = frozenset({DatasetState.RUNNING, DatasetState.WAITING})
_GOING: Final = frozenset({DatasetState.RUNNING, DatasetState.WAITING, DatasetState.DRAINING})


def observation_now(view: RunView, settings: RunConfig, basis: Basis | None, sent: Mapping[str, str]) -> Observation:
    """The newest recorded observation with the states of now; without one, the run as it would begin.

    `sent`: dataset → route, of those that go to an API already. They are compared as if they came back now; once all have gone,
    the speed that was observed last is none of the box's.
    """
    if basis is None:
        return _as_it_would_begin(view, settings)
    seen = basis.observation
    states = {d.name: d.state for d in view.datasets}
    works = view.supervisor.state in (SupervisorState.ALIVE, SupervisorState.NOT_ANSWERING)

    def present(now: DatasetNow) -> DatasetNow:
        told = states.get(now.name)
        if now.name in sent and told in _ADMITTING:
            return replace(now, state=DatasetState.WAITING, in_flight=LengthCounts())  # what is in flight there is not here
        state = now.state if told is None or (told in _GOING and now.state in _GOING) else told
        # where nobody works, what was in flight is made again
        return replace(now, state=state, in_flight=now.in_flight if works else LengthCounts())

    if sent and all(d.name in sent or states.get(d.name) not in _GOING for d in seen.datasets):
        seen = replace(seen, history=SpeedHistory(10.0, np.zeros(0), np.zeros(0)))
    return replace(seen, datasets=tuple(present(d) for d in seen.datasets))


def read_box(run: RunDir, settings: RunConfig) -> tuple[Box, str]:
    """What the box costs, and how that comes about. Raises RunDirError."""
    costs, engine = settings.costs, settings.engine
    newest = read_newest(run, "gpu_samples")
    gpus = costs.gpus or (len(engine.gpus) if engine.gpus else None) or len(newest) or None
    if gpus is None and engine.kind in (EngineKind.LOCAL, EngineKind.CONTAINER):
        gpus = engine.replicas * engine.tp
    box = Box(
        gpus=gpus,
        gpu_hour_usd=_decimal(costs.gpu_hour_usd),
        power_w=_power_w(run, newest) if costs.kwh_usd is not None and costs.gpu_hour_usd is None else None,
        kwh_usd=_decimal(costs.kwh_usd),
        amortisation_usd_per_hour=_decimal(costs.amortisation_usd_per_hour),
    )
    return box, _box_words(box)


def read_texts(run: RunDir, view: RunView, settings: RunConfig) -> tuple[Texts, str]:
    """How long prompts are and how much of an answer is reasoning, and where that is from. Raises RunDirError."""
    known = {d.name: d.prompt_tokens / d.finished_samples for d in view.datasets if d.prompt_tokens and d.finished_samples}
    sized = _by_file_size(settings)
    prompts = {d.name: known.get(d.name, sized.get(d.name)) for d in view.datasets}
    if len(known) == len(view.datasets):
        words = "measured"
    else:
        guessed = [d.name for d in view.datasets if d.name not in known]
        words = f"of {', '.join(guessed)} from the size of the files, {BYTES_PER_TOKEN:g} bytes a token"
    return Texts(prompts, _reasoning_shares(run)), words


def _as_it_would_begin(view: RunView, settings: RunConfig) -> Observation:
    datasets = []
    for told in view.datasets:
        config = settings.dataset(told.name)
        prompts = told.total_samples if told.total_samples is not None else _records(settings, told.name)
        cap = settings.sampling_for(config).max_new_tokens
        state = told.state if told.state is not None else DatasetState.WAITING
        datasets.append(DatasetNow(told.name, state, prompts, told.token_budget, cap))
    cancel = all(d.at_budget is AtBudget.CANCEL for d in settings.datasets)
    return Observation(
        active_s=0.0,
        concurrency=view.concurrency,
        datasets=tuple(datasets),
        history=SpeedHistory(10.0, np.zeros(0), np.zeros(0)),
        budget_stop=BudgetStop.CANCEL if cancel else BudgetStop.RESERVE,
    )


def _records(settings: RunConfig, name: str) -> int:
    return sum(f.records for f in settings.frozen.prompt_files.get(name, ())) if settings.frozen else 0


def _by_file_size(settings: RunConfig) -> dict[str, float]:
    sizes = {}
    for name, files in (settings.frozen.prompt_files if settings.frozen else {}).items():
        records = sum(f.records for f in files)
        if records:
            sizes[name] = sum(f.bytes for f in files) / records / BYTES_PER_TOKEN
    return sizes


def _reasoning_shares(run: RunDir) -> dict[str, float | None]:
    """Dataset → share of the completion tokens that was reasoning, where the server told it."""
    with reading(run.ledger) as con:
        if con is None or not all(has_table(con, name) for name in ("sealed_shards", "open_rows")):
            return {}
        rows = con.execute(
            "SELECT dataset, SUM(reasoning), SUM(completion) FROM ("
            " SELECT dataset, reasoning_tokens AS reasoning, completion_tokens AS completion FROM sealed_shards"
            " UNION ALL SELECT dataset, reasoning_tokens, completion_tokens FROM open_rows) GROUP BY dataset"
        ).fetchall()
    return {name: reasoning / completion for name, reasoning, completion in rows if reasoning and completion}


def _power_w(run: RunDir, newest: Mapping[str, Mapping[str, Any]]) -> float | None:
    """All GPUs together, over the last hour that was measured."""
    until = max((float(sample["at"]) for sample in newest.values()), default=None)
    if until is None:
        return None
    lines = read_lines(run, "gpu_samples", ["power_w"], until - POWER_WINDOW_S, until + 1)
    means = [_mean(series.values["power_w"]) for series in lines.values()]
    known = [mean for mean in means if mean is not None]
    return sum(known) if known else None


def _mean(values: Iterable[float | str | None]) -> float | None:
    known = [float(value) for value in values if value is not None]
    return sum(known) / len(known) if known else None


def _box_words(box: Box) -> str:
    rate = box.usd_per_hour
    if box.gpu_hour_usd is not None:
        if box.gpus is None:
            return "how many GPUs are paid for is not known: write costs.gpus into run.toml"
        return f"{plural(box.gpus, 'GPU')} at {usd(box.gpu_hour_usd)} an hour: {usd(rate)} an hour"
    parts = []
    if box.kwh_usd is not None:
        if box.power_w is None:
            return "the GPUs' energy is not measured: write costs.gpu_hour_usd into run.toml"
        parts.append(f"{number(box.power_w / 1000, 2)} kW, measured at the GPUs, at {usd(box.kwh_usd)} a kWh")
    if box.amortisation_usd_per_hour is not None:
        parts.append(f"{usd(box.amortisation_usd_per_hour)} an hour of amortisation")
    if not parts:
        return "unknown: write costs.gpu_hour_usd, or costs.kwh_usd for a box of your own, into run.toml"
    return f"{' and '.join(parts)}: {usd(rate)} an hour"


def _decimal(value: float | None) -> Decimal | None:
    return None if value is None else Decimal(str(value))
