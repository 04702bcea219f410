"""What sweeps of a run say: how far the present one is, its levels, the knee, and which concurrency ends the run soonest."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

from backend.config import EngineKind, RunConfig
from backend.forecast.concurrency import ConcurrencyOption, KvRoom, Recommendation, recommend
from backend.forecast.curve import knee
from backend.forecasts import Basis, read_basis
from backend.heartbeat import SupervisorState
from backend.report.formatting import DASH, duration, number, plural
from backend.report.series import read_newest
from backend.report.views import RunView
from backend.run_dir import RunDir
from backend.sweeps import Curve, Sweep, SweepLevel, SweepState, newest_curve, sweeps_of

DEFAULT_LEVELS: Final = (1, 4, 8, 16, 32, 48)
HEAD: Final = ("in flight", "tokens/s", "±", "a request", "first token", "running", "KV", "context", "measured")
SHORT_HEAD: Final = ("In flight", "Tokens/s", "A request", "First token", "KV pool, tokens in it", "Measured")
LEFT_EARLY: Final = {
    SweepState.CANCELLED: "was cancelled",
    SweepState.ENDED: "could not go on",
    SweepState.INTERRUPTED: "was interrupted",
}
UNTOLD: Final = "Which concurrency ends the run soonest is told while it goes on, once it has a forecast."


@dataclass(frozen=True, slots=True)
class SweepView:
    """The newest sweep and what follows from the newest curve. Everything is None before the first sweep."""

    sweep: Sweep | None
    curve: Curve | None  # for all replicas of the run
    knee: int | None  # of the curve, requests in flight
    recommendation: Recommendation | None
    concurrency: int  # as it is wished now
    replicas: int  # of the run

    @property
    def is_running(self) -> bool:
        """Whether a sweep is at work, as far as is known."""
        return self.sweep is not None and self.sweep.state is SweepState.RUNNING


def read_sweep(run: RunDir, view: RunView, settings: RunConfig, *, recommending: bool = True) -> SweepView:
    """The newest sweep; its recommendation rests on what the newest forecast was made from. Raises RunDirError.

    A recommendation takes some ten forecasts (0.2 s): what is looked at each second does without.
    """
    sweeps, replicas = [_as_it_is(sweep, view) for sweep in sweeps_of(run)], replicas_of(settings)
    curve = newest_curve(sweeps, replicas)
    basis = read_basis(run) if curve is not None and recommending else None
    found = None
    if curve is not None and basis is not None:
        found = recommended(basis, curve, _kv_room(run, view))
    return SweepView(
        sweep=sweeps[0] if sweeps else None,
        curve=curve,
        knee=knee([(round(n), speed) for n, speed in curve.points]) if curve else None,
        recommendation=found,
        concurrency=view.concurrency,
        replicas=replicas,
    )


def _as_it_is(sweep: Sweep, view: RunView) -> Sweep:
    """A sweep that its supervisor left running when it died is interrupted, before the next one says so."""
    lives = view.supervisor.state in (SupervisorState.ALIVE, SupervisorState.NOT_ANSWERING)
    if lives or sweep.state is not SweepState.RUNNING:
        return sweep
    return replace(sweep, state=SweepState.INTERRUPTED, reason="its supervisor ended", progress=None)


def recommended(basis: Basis, curve: Curve, kv: KvRoom | None) -> Recommendation | None:
    """By forecasts of this run from what its newest one was made from."""
    return recommend(basis.observation, curve.points, kv=kv, calibration=basis.calibration)


def replicas_of(settings: RunConfig) -> int:
    """How many replicas the run has when all are ready."""
    engine = settings.engine
    return len(engine.urls) if engine.kind is EngineKind.ATTACHED else engine.replicas


def sweep_sentence(view: SweepView) -> str:
    """How far the sweep is, or what the last one came to."""
    sweep = view.sweep
    if sweep is None:
        return "The concurrency of this run was never swept: how many requests at once make the most tokens is not known."
    if sweep.state is SweepState.RUNNING:
        return progress_sentence(sweep)
    told = f"{plural(len(sweep.levels), 'level')} of {sweep.source}" if sweep.source else plural(len(sweep.levels), "level")
    early = LEFT_EARLY.get(sweep.state)
    if early is not None:
        reason = f": {sweep.reason}" if sweep.reason else ""
        return f"The last sweep {early}{reason}. {len(sweep.levels)} of its {len(sweep.asked)} levels are measured."
    return f"{told[0].upper()}{told[1:]} measured on {plural(sweep.replicas, 'replica')}."


def progress_sentence(sweep: Sweep) -> str:
    """What a running sweep does now."""
    now = sweep.progress
    if now is None:
        return "The sweep begins…"
    place = f"level {sweep.asked.index(now.level) + 1} of {len(sweep.asked)}" if now.level in sweep.asked else "a level"
    match now.stage:
        case "lowering":
            return f"Waits until {plural(now.in_flight, 'request')} in flight are {now.level} ({place})."
        case "filling":
            return f"Starts requests until {now.level} are in flight and their prompts computed ({place})."
    if now.tokens_per_s is None:
        return f"Measures {now.level} in flight ({place})…"
    width = _share(now.half_width_tokens_per_s, now.tokens_per_s)
    so_far = f"{number(now.tokens_per_s)} tokens/s so far" + ("" if width == DASH else f", ± {width}")
    return f"Measures {now.level} in flight ({place}): {so_far}."


def curve_sentences(view: SweepView) -> list[str]:
    """Knee, recommendation and what both rest on; empty before the first curve."""
    curve = view.curve
    if curve is None or view.knee is None:
        return []
    best = max(speed for _, speed in curve.points)
    at_knee = next(speed for n, speed in curve.points if round(n) == view.knee)
    of_best = f"{number(at_knee)} of {number(best)} tokens/s"
    before = "Of the sweep before this one. " if view.sweep is not None and view.sweep.id != curve.sweep.id else ""
    sentences = [f"{before}Knee: {view.knee} in flight, the fewest that make 90 % of the best speed ({of_best})."]
    found = view.recommendation
    if found is None:
        sentences.append(UNTOLD)
    else:
        sentences.append(f"Recommended: {found.concurrency} in flight. {what_it_changes(view, found.concurrency)}")
        if found.fits is not None and found.fits < max(n for n, _ in curve.points):
            sentences.append(f"The KV pools hold about {found.fits:,} requests of this run at once: more would wait for room.")
    if _still_rises(curve):
        sentences.append("The highest level is the fastest by more than 3 %: higher ones may be faster still.")
    sentences += _scaled(curve)
    return sentences


def what_it_changes(view: SweepView, concurrency: int) -> str:
    """What another concurrency would do to the end of the run: what a page says before it is asked for."""
    options = {option.concurrency: option for option in view.recommendation.options} if view.recommendation else {}
    then, now = options.get(concurrency), options.get(view.concurrency)
    if then is None or now is None:
        return ""
    if then is now:
        return f"That is what it is: the run ends in about {duration(now.remaining.p50)}."
    gained = now.remaining.p50 - then.remaining.p50
    how = "sooner" if gained >= 0 else "later"
    return (
        f"The run would end {duration(abs(gained))} {how} than with {view.concurrency}: in about "
        f"{duration(then.remaining.p50)} ({_range_words(then)}). Each request would make {_a_request(then)} tokens/s, now "
        f"{_a_request(now)}."
    )


def level_rows(levels: Sequence[SweepLevel]) -> list[list[str]]:
    """A row a level, under `HEAD`."""
    return [_row(level) for level in levels]


def short_rows(levels: Sequence[SweepLevel]) -> list[list[str]]:
    """The same under `SHORT_HEAD`: for a page that may be narrow."""
    rows = []
    for count, speed, width, each, first, _, usage, context, measured in level_rows(levels):
        within = "" if width == DASH else f" ± {width}"
        kv = usage if context == DASH else f"{usage}, {context} a request"
        rows.append([count, f"{speed}{within}", each, first, kv, measured])
    return rows


def _still_rises(curve: Curve) -> bool:
    if len(curve.points) < 2:
        return False
    *others, (_, last) = curve.points
    return last > 1.03 * max(speed for _, speed in others)


def _scaled(curve: Curve) -> list[str]:
    sweep = curve.sweep
    if curve.efficiency is None:
        return []
    source = "assumed, until sweeps with several numbers of replicas tell" if curve.efficiency_is_assumed else "measured"
    return [
        f"Measured on {plural(sweep.replicas, 'replica')}, reckoned for {curve.replicas}: one more replica brings "
        f"{curve.efficiency:.0%} of what the first does ({source})."
    ]


def _kv_room(run: RunDir, view: RunView) -> KvRoom | None:
    """The pools of the replicas that were measured last."""
    told = [sample.get("kv_capacity_tokens") for sample in read_newest(run, "engine_samples").values()]
    known = [float(capacity) for capacity in told if capacity]
    samples, prompts = view.totals.finished_samples, view.totals.prompt_tokens
    if not known or len(known) != len(told) or not samples or prompts is None:
        return None
    return KvRoom(sum(known), prompts / samples)


def _row(level: SweepLevel) -> list[str]:
    width = _share(level.half_width_tokens_per_s, level.tokens_per_s)
    return [
        f"{level.concurrency:,}",
        _speed(level.tokens_per_s),
        width,
        _speed(level.tokens_per_s_a_request),
        _wait(level.first_token_s),
        DASH if level.running is None else f"{level.running:.1f}",
        DASH if level.token_usage is None else f"{level.token_usage:.0%}",
        number(level.context_tokens),
        duration(level.measured_s) + ("" if level.known or level.measured_s is None else ", time up"),
    ]


def _speed(tokens_per_s: float) -> str:
    return number(tokens_per_s, 0 if tokens_per_s >= 100 else 1)


def _wait(seconds: float | None) -> str:
    if seconds is None:
        return DASH
    return f"{1000 * seconds:,.0f} ms" if seconds < 1 else f"{seconds:.1f} s"


def _share(part: float | None, whole: float) -> str:
    return DASH if part is None or not whole else f"{part / whole:.1%}"


def _a_request(option: ConcurrencyOption) -> str:
    return _speed(option.tokens_per_s / option.concurrency)


def _range_words(option: ConcurrencyOption) -> str:
    return f"{duration(option.remaining.p10)} to {duration(option.remaining.p90)}"
