"""PURE: the first line of a page: what runs and how far it is; and what simple extrapolation says of the rest.

The command line's sentences are `status_text.py`'s; they name commands, these stand beside buttons.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Final

from backend.forecasts import Said
from backend.heartbeat import SupervisorState
from backend.records import DatasetState, EngineState, RunPhase
from backend.report.formatting import compact, duration, number, plural
from backend.report.looks import NOT_BEGUN, of_dataset
from backend.report.views import DatasetView, RunView

OVER: Final = frozenset({DatasetState.DONE, DatasetState.KILLED, DatasetState.FAILED})
_STANDING: Final = frozenset({DatasetState.PAUSED, DatasetState.HELD})  # need somebody before they go on
_ACTIVE: Final = frozenset({DatasetState.RUNNING, DatasetState.DRAINING})


def headline(view: RunView) -> str:
    """What runs and how far it is: "Running B3, 2 of 6 datasets done, 4,812 samples with 9.8M tokens."."""
    done = _done(view)
    match view.supervisor.state:
        case SupervisorState.NEVER_STARTED:
            return f"Created and not started yet: {plural(len(view.datasets), 'dataset')}."
        case SupervisorState.DEAD:
            return f"Interrupted, {done}."
        case SupervisorState.NOT_ANSWERING:
            return f"Not answering, {done}."
    match view.phase:
        case RunPhase.STARTING | None:
            return f"Starting, {done}."
        case RunPhase.RUNNING:
            return f"{_doing(view)}, {done}."
        case RunPhase.DRAINING:
            return f"Stopping when {plural(view.in_flight or 0, 'request')} in flight are done, {done}."
        case RunPhase.STOPPING:
            return f"Stopping the engine, {done}."
    return f"{view.phase.value.capitalize()}, {done}."


def dataset_headline(view: RunView, dataset: DatasetView) -> str:
    """How far one dataset is: "B3 is running: 812 of 2,000 samples finished, 1.6M of 4.0M tokens."."""
    look = of_dataset(dataset, alive=view.supervisor.state is SupervisorState.ALIVE)
    verb = "has" if look is NOT_BEGUN else "" if look.word.startswith("was ") else "is"
    state = " ".join(word for word in (dataset.name, verb, look.word.removesuffix("…")) if word)
    if dataset.finished_samples is None or dataset.completion_tokens is None:
        return f"{state}: how much is finished is not known."
    samples = _of(number(dataset.finished_samples), number, dataset.total_samples)
    tokens = _of(compact(dataset.completion_tokens), compact, dataset.token_budget)
    return f"{state}: {samples} samples finished, {tokens} tokens."


def supervisor_trouble(view: RunView) -> str | None:
    """What is said, with a button, where nobody works on a run that is not over; None where all is well."""
    s = view.supervisor
    ago = f" since {duration(s.heartbeat_age_s)}" if s.heartbeat_age_s is not None else ""
    if s.state is SupervisorState.DEAD:
        return f"The supervisor is dead: no sign of life{ago}. What is finished is safe; a restart goes on from there."
    if s.state is SupervisorState.NOT_ANSWERING:
        return (
            f"The supervisor (pid {s.pid or 'not known'}) is not answering: no sign of life{ago}. Its machine may be "
            f"overloaded or its disk slow. If that lasts, end the process; then it can be restarted here."
        )
    if s.state is SupervisorState.LEFT and view.phase is RunPhase.FAILED:
        errors = [e.message for e in view.events if e.severity == "error"]
        return f"The run has failed. {errors[-1] if errors else 'Its log says why.'}"
    if view.admission_stopped and s.state is SupervisorState.ALIVE:
        return f"Nothing is admitted: {view.admission_stopped}"
    return None


def naive_eta_s(datasets: Sequence[DatasetView], tokens_per_s: float | None) -> float | None:
    """Seconds until everything that may run is done, as if the last minutes went on: remaining tokens by their speed.

    A dataset ends at whichever of its limits comes first. None where a limit, a mean or the speed is not known, or nothing is
    left to do.
    """
    if not tokens_per_s or tokens_per_s <= 0:
        return None
    remaining, means = 0.0, [d.mean_completion_tokens for d in datasets if d.mean_completion_tokens]
    for dataset in datasets:
        if dataset.state is None or dataset.state in OVER or dataset.state in _STANDING:
            continue
        mean = dataset.mean_completion_tokens or (sum(means) / len(means) if means else None)
        limits = []
        if dataset.token_budget is not None:
            limits.append(float(dataset.token_budget - (dataset.completion_tokens or 0)))
        if dataset.total_samples is not None and mean is not None:
            limits.append((dataset.total_samples - (dataset.finished_samples or 0)) * mean)
        if not limits:
            return None
        remaining += max(0.0, min(limits))
    return remaining / tokens_per_s if remaining > 0 else None


def naive_speed(said: Said | None) -> float | None:
    """Tokens/s of the last five minutes before the newest forecast; None where it knew none."""
    return said.forecast.assumptions.naive_tokens_per_s if said is not None and said.forecast.assumptions is not None else None


def naive_words(seconds: float | None) -> str | None:
    """ "simple extrapolation: 3 h 20 min", to stand beside a forecast; None where it is not known."""
    return None if seconds is None else f"simple extrapolation: {_roughly(seconds)}"


def progress(dataset: DatasetView) -> float | None:
    """0..1 of the limit that is nearest, samples or tokens; None where neither is known."""
    if dataset.state is DatasetState.DONE:
        return 1.0
    pairs = (
        (dataset.finished_samples, dataset.total_samples),
        (dataset.completion_tokens, dataset.token_budget),
    )
    known = [part / whole for part, whole in pairs if part is not None and whole]
    return min(1.0, max(known)) if known else None


def share_done(view: RunView) -> float | None:
    """0..1 over all datasets that were not killed; None where one of them is not known."""
    shares = [progress(d) for d in view.datasets if d.state is not DatasetState.KILLED]
    known = [s for s in shares if s is not None]
    return sum(known) / len(known) if known and len(known) == len(shares) else None


def age_words(view: RunView) -> str | None:
    """From its creation until now, or until its supervisor left: "3 h 20 min"; None where its run.toml does not tell."""
    if view.created_at is None:
        return None
    try:
        created_at = datetime.fromisoformat(view.created_at).timestamp()
    except (ValueError, OverflowError):  # a run.toml that somebody has edited
        return None
    ended_at = view.supervisor.heartbeat_at if view.supervisor.state is SupervisorState.LEFT else None
    age_s = max(0.0, (view.at if ended_at is None else ended_at) - created_at)
    return duration(age_s if age_s < 60 else age_s // 60 * 60).removesuffix(" 00 s")


def _of(part: str, write: Callable[[float | None], str], whole: float | None) -> str:
    """ "812 of 2,000"; without a whole "812"."""
    return part if whole is None else f"{part} of {write(whole)}"


def _roughly(seconds: float) -> str:
    """To what such a guess is worth: minutes, from ten hours on tens of minutes, from two days on hours."""
    grain = 10 if seconds < 90 else 60 if seconds < 36_000 else 600 if seconds < 172_800 else 3600
    words = duration(max(10.0, round(seconds / grain) * grain))
    return words.removesuffix(" 00 s").removesuffix(" 00 min").removesuffix(" 00 h")


def _doing(view: RunView) -> str:
    active = [d.name for d in view.datasets if d.state in _ACTIVE]
    ready = any(r.state is EngineState.READY for r in view.replicas)
    if not ready:
        states = ", ".join(dict.fromkeys(r.state.value for r in view.replicas))
        return f"Waiting for the engine ({states})" if states else "Waiting for the engine"
    if active:
        return f"Running {active[0] if len(active) == 1 else ', '.join(active[:-1]) + ' and ' + active[-1]}"
    left = [d for d in view.datasets if d.state not in OVER]
    if left and all(d.state is DatasetState.PAUSED for d in left):
        return "Paused"
    if held := [d.name for d in left if d.state is DatasetState.HELD]:
        return f"Waiting for a decision: {', '.join(held)} {'is' if len(held) == 1 else 'are'} held"
    return "Waiting, no dataset may run"


def _done(view: RunView) -> str:
    over = sum(d.state is DatasetState.DONE for d in view.datasets)
    t = view.totals
    parts = [f"{over} of {plural(len(view.datasets), 'dataset')} done"]
    if t.finished_samples is None or t.completion_tokens is None:
        parts.append("how much is finished is not known")
    else:
        parts.append(f"{plural(t.finished_samples, 'sample')} with {compact(t.completion_tokens)} tokens")
    return ", ".join(parts)
