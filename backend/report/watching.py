"""What those who only watch one run are told: how it goes, at most a second old, and its forecast, read once for all.

What they may see at all is `public.py`'s.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from threading import Lock
from typing import Final

from backend import forecasts
from backend.config import ConfigError
from backend.forecasts import Said
from backend.report.end_words import Span, span_after
from backend.report.ending import Ending, EndKind, ending
from backend.report.forecast import ForecastView, forecast_view
from backend.report.live import LiveError, LiveRuns
from backend.report.public import PublicRun, public_run
from backend.run_dir import RunDir, RunDirError

FORECAST_KEPT_S: Final = 20.0  # reading it costs a tenth of a second of a core, and it changes once a minute


@dataclass(frozen=True, slots=True)
class Watched:
    """How the run goes, and when it and each dataset end as far as that can be said."""

    public: PublicRun
    ending: Ending
    dataset_ends: Mapping[str, Span]
    tokens_per_s: Mapping[str, float | None]  # of datasets, the last minute


class Watching:
    """One run; one object a process, for any number of threads. `clock` in epoch seconds."""

    def __init__(self, run: RunDir, clock: Callable[[], float] = time.time) -> None:
        self.run = run
        self._live = LiveRuns(lambda: run.root.parent, clock)
        self._clock = clock
        self._lock = Lock()
        self._forecast: ForecastView | None = None

    def public(self) -> PublicRun:
        """How it goes. Raises LiveError, whose words are not for those who watch."""
        return public_run(self._live.view(self.run))

    def now(self) -> Watched:
        """The same, with its end. Raises LiveError."""
        view = self._live.view(self.run)
        try:
            said = forecasts.read_newest(self.run)
        except RunDirError as error:
            raise LiveError(str(error)) from None
        end = ending(view, said)
        ends = _ends(said) if said is not None and end.kind is EndKind.GOING else {}
        return Watched(public_run(view), end, ends, self._live.dataset_speeds(self.run))

    def forecast(self) -> ForecastView:
        """What charts and assumptions are drawn from, at most `FORECAST_KEPT_S` old and without events, which are not for all.

        Raises LiveError.
        """
        with self._lock:
            now, kept = self._clock(), self._forecast
            if kept is None or not 0 <= now - kept.at < FORECAST_KEPT_S:
                try:
                    kept = self._forecast = replace(forecast_view(self.run, now), events=(), changes=())
                except (RunDirError, ConfigError) as error:
                    raise LiveError(str(error)) from None
            return kept


def _ends(said: Said) -> dict[str, Span]:
    found = {one.name: one.ends_in for one in said.forecast.datasets}
    return {name: span_after(said.at, left) for name, left in found.items() if left is not None and left.p90 > 0}
