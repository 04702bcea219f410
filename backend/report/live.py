"""What the JSON routes of the live view answer, once a second and for as many tabs as look: a run is read once, then shared.

Words are `headline.py`'s, figures `figures.py`'s, series `live_telemetry.py`'s; how a state looks is the pages' affair.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from threading import Lock
from typing import Any, Final

from backend import forecasts
from backend.config import ConfigError, RunConfig, load
from backend.forecasts import Said
from backend.heartbeat import SupervisorState, has_table, reading
from backend.records import EngineState
from backend.report.apis_text import spend_figure
from backend.report.ending import Ending, ending
from backend.report.figures import Figure, GpuFigures, Trends, figures, gpu_figures, honest_mean
from backend.report.formatting import plural
from backend.report.headline import age_words, headline, naive_eta_s, naive_speed, naive_words, share_done, supervisor_trouble
from backend.report.live_telemetry import Charts, Now, Slow, read_charts, read_events, read_now, read_slow
from backend.report.pending import read_pending, with_pending
from backend.report.status import read_status
from backend.report.views import RunView
from backend.run_dir import RunDir, RunDirError
from backend.runs import list_runs

SLOW_EVERY_S: Final = 15.0
SAID_EVERY_S: Final = 3.0  # how often it is looked whether there is a newer forecast
OVERLAP_S: Final = 5  # what was written late is sent again: a browser puts each point in its place


class LiveError(Exception):
    """A run cannot be shown; the message says which and why."""


@dataclass(frozen=True, slots=True)
class Live:
    """One answer. What `charts` and `events` hold is only what came since; `seq` is what to ask with next."""

    view: RunView
    seq: int
    sentence: str
    detail: str
    trouble: str | None
    age: str | None  # from its creation until now or its end
    share: float | None  # 0..1 of what is to do, by the limit that is nearest, all datasets together
    ending: Ending | None = None
    naive: str | None = None  # what simple extrapolation says
    figures: list[Figure] = field(default_factory=list)
    gpus: list[GpuFigures] = field(default_factory=list)
    charts: Charts | None = None
    target_tokens: int | None = None
    events: list[dict[str, Any]] = field(default_factory=list)


@dataclass(slots=True)
class _Known:
    """What was read of one run, and when."""

    lock: Lock = field(default_factory=Lock)
    settings: RunConfig | None = None
    settings_of: tuple[int, int, int] | None = None  # inode, size and time of the run.toml they were read from
    second: int = -1
    view: RunView | None = None
    answers: dict[tuple[str, int], Live] = field(default_factory=dict)
    slow: Slow | None = None
    slow_at: float = 0.0
    said: Said | None = None
    said_at: float = -math.inf


class LiveRuns:
    """The runs of a folder as pages and routes see them; one object a process, for any number of threads."""

    def __init__(self, runs: Callable[[], Path], clock: Callable[[], float] = time.time) -> None:
        self._runs, self._clock = runs, clock
        self._known: dict[Path, _Known] = {}
        self._lock = Lock()

    def find(self, name: str) -> RunDir:
        """The run of exactly this name. Raises LiveError: a name is compared, never made a path of."""
        try:
            found = next((run for run in list_runs(self._runs()) if run.name == name), None)
        except RunDirError as error:
            raise LiveError(str(error)) from None
        if found is None:
            raise LiveError("There is no run of this name.")
        return found

    def view(self, run: RunDir) -> RunView:
        """The run as it is, at most a second old. Raises LiveError."""
        known = self._of(run)
        with known.lock:
            return self._view(run, known)

    def fresh_view(self, run: RunDir) -> RunView:
        """The run as it is now, also what was pressed a moment ago. Raises LiveError."""
        known = self._of(run)
        with known.lock:
            known.second = -1
            return self._view(run, known)

    def dataset_speeds(self, run: RunDir) -> Mapping[str, float | None]:
        """Dataset → finished tokens/s of the last minute; empty where nobody works on the run."""
        known = self._of(run)
        with known.lock:
            view = self._view(run, known)
            if view.supervisor.state is not SupervisorState.ALIVE:
                return {}
            try:
                slow = self._slow(run, known, view.at)
            except RunDirError:
                return {}
            return slow.dataset_tokens_per_s if slow else {}

    def said(self, run: RunDir) -> Said | None:
        """The newest forecast; None without one, and where it cannot be read: the Forecast page says why. Raises LiveError."""
        known = self._of(run)
        with known.lock:
            return self._said(run, known, self._view(run, known).at)

    def pulse(self, name: str) -> Live:
        """What every page shows of its run: state, sentence, trouble. Raises LiveError."""
        run = self.find(name)
        return _told(self.view(run))

    def answer(self, name: str, since: int, stretch: str) -> Live:
        """All that Overview shows live. `since` is a former answer's `seq`, 0 for everything; `stretch` one of STRETCHES.

        Raises LiveError.
        """
        run = self.find(name)
        known = self._of(run)
        since = since // OVERLAP_S * OVERLAP_S  # tabs that ask within the same seconds share an answer
        with known.lock:
            view = self._view(run, known)
            if (stretch, since) not in known.answers:
                known.answers[stretch, since] = self._answer(run, known, view, since, stretch)
            return known.answers[stretch, since]

    def _of(self, run: RunDir) -> _Known:
        with self._lock:
            return self._known.setdefault(run.root, _Known())

    def _view(self, run: RunDir, known: _Known) -> RunView:
        now = self._clock()
        if known.view is None or known.second != int(now):
            try:
                view = read_status(run, now, counted=False, settings=_settings(run, known))
                known.view = with_pending(view, read_pending(run, view.supervisor.heartbeat_at))
            except (RunDirError, ConfigError) as error:
                raise LiveError(f"{run.name} cannot be read: {error}") from None
            known.second = int(now)
            known.answers.clear()
        return known.view

    def _slow(self, run: RunDir, known: _Known, now: float) -> Slow | None:
        if known.slow is None or not 0 <= now - known.slow_at < SLOW_EVERY_S:
            with reading(run.state) as con:
                # `rollups` is the last table that a first supervisor makes
                known.slow = read_slow(con, now) if con is not None and has_table(con, "rollups") else None
            known.slow_at = now
        return known.slow

    def _said(self, run: RunDir, known: _Known, now: float) -> Said | None:
        if not 0 <= now - known.said_at < SAID_EVERY_S:
            try:
                known.said = forecasts.read_newest(run)
            except RunDirError:
                known.said = None
            known.said_at = now
        return known.said

    def _answer(self, run: RunDir, known: _Known, view: RunView, since: int, stretch: str) -> Live:
        now, alive = view.at, view.supervisor.state is SupervisorState.ALIVE
        said = self._said(run, known, now)
        end = ending(view, said)
        try:
            slow = self._slow(run, known, now)
            with reading(run.state) as con:
                if con is None or slow is None:
                    return _told(view, ending=end, figures=figures(view, {}, {}, None, Trends()))
                measured = read_now(con, slow, now) if alive else Now()
                charts = read_charts(con, slow, since=since, stretch=stretch, now=now)
                # the first answer's events reach as far back as its longest chart
                events = read_events(con, since - OVERLAP_S)
        except RunDirError as error:
            return _told(view, figures=figures(view, {}, {}, None, Trends()), trouble=str(error), seq=since)
        return _told(
            view,
            seq=int(now) - OVERLAP_S,
            ending=end,
            naive=naive_words(naive_eta_s(view.datasets, naive_speed(said) or slow.speed_tokens_per_s)) if alive else None,
            figures=figures(
                view,
                measured.driver,
                measured.engine,
                measured.decode_tokens_per_s,
                slow.trends if alive else Trends(),
                mean=honest_mean(view, said),
            ),
            gpus=gpu_figures(measured.gpus, slow.gpu_trends),
            charts=charts,
            target_tokens=_target(view),
            events=events,
        )


def _settings(run: RunDir, known: _Known) -> RunConfig:
    """run.toml, read anew only when it has changed: it is frozen at the start."""
    try:
        found = run.config.stat()
        of = (found.st_ino, found.st_size, found.st_mtime_ns)
    except OSError:
        of = None
    if known.settings is None or of is None or of != known.settings_of:
        known.settings, known.settings_of = load(run.config), of
    return known.settings


def _told(view: RunView, *, seq: int = 0, trouble: str | None = None, **more: Any) -> Live:
    spend = spend_figure(view)
    if spend is not None and "figures" in more:
        more["figures"] = [*more["figures"], spend]
    return Live(
        view=view,
        seq=seq,
        sentence=headline(view),
        detail=_detail(view),
        trouble=trouble or supervisor_trouble(view),
        age=age_words(view),
        share=share_done(view),
        **more,
    )


def _detail(view: RunView) -> str:
    parts = [view.model.rpartition("/")[2], f"engine {view.engine_kind}"]
    if view.replicas and view.supervisor.state is SupervisorState.ALIVE:
        ready = sum(r.state is EngineState.READY for r in view.replicas)
        parts.append(f"{ready} of {plural(len(view.replicas), 'replica')} ready")
    return " · ".join(parts)


def _target(view: RunView) -> int | None:
    """What all token budgets come to; None where a dataset has none."""
    budgets = [d.token_budget for d in view.datasets]
    return None if None in budgets else sum(b for b in budgets if b is not None)
