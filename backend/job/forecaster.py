"""Forecasts while the run goes on: watches how fast tokens are made, forecasts each minute and on each change, keeps score.

How a forecast is reckoned is `backend/forecast/`'s, how it is kept `backend/forecasts.py`'s. Nothing here may stop the job.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import defaultdict
from collections.abc import Coroutine, Mapping, Sequence
from typing import Any, Final

from backend import forecasts
from backend.config import AtBudget
from backend.forecast.calibrate import BUILT_IN, Score, recalibrate
from backend.forecast.forecast import Forecast, forecast
from backend.forecast.observation import BudgetStop, Observation
from backend.forecasts import RUN, Said, Scored
from backend.job.bulletin import Bulletin
from backend.job.conditions import Condition
from backend.job.forecast_input import dataset_now
from backend.job.forecast_lanes import engines_part, even_curve, lanes_of, made_by, side_by_side
from backend.job.replica_keeper import ReplicaKeeper
from backend.job.routes import LOCAL
from backend.job.slots import Slots
from backend.job.speed_history import SpeedBins
from backend.job.state_store import StateStore
from backend.job.wishes import Want, Wishes
from backend.run_dir import RunDir, RunDirError
from backend.sweeps import Curve, Points

log = logging.getLogger(__name__)

EVERY_S: Final = 60.0
EARLY_EVERY_S: Final = 15.0  # while little is known, each quarter of a minute tells more
EARLY_S: Final = 300.0  # of active time
RAMP_S: Final = 10.0  # after nothing was in flight: prompts are being read, what is made then tells no speed
SOON_S: Final = 5.0  # after one in which nothing could be said yet,
SOON_TIMES: Final = 6  # so often in a life
CHANGE_GAP_S: Final = 3.0  # what changes together is forecast together


class Forecaster:
    """Belongs to the event loop; forecasts are reckoned on a thread."""

    def __init__(
        self,
        run: RunDir,
        *,
        slots: Slots,
        apis: Mapping[str, Slots],
        keepers: Sequence[ReplicaKeeper],
        store: StateStore,
        bulletin: Bulletin,
        wishes: Wishes,
    ) -> None:
        """`slots` are the engine's, `apis` those of each API; `wishes` are those that the last forecast was made for."""
        self._run, self._slots, self._keepers, self._store, self._bulletin = run, slots, keepers, store, bulletin
        self._apis = apis
        self._lanes: defaultdict[str, SpeedBins] = defaultdict(SpeedBins)
        self._busy_s: defaultdict[str, float] = defaultdict(float)  # lane → since nothing was in flight there
        self._active_s = 0.0
        self._plan = 0
        self._planned = _plan_of(wishes)
        self._looked_at: float | None = None  # monotonic
        self._lost = 0.0  # tokens, at the last look
        self._ready = 0  # replicas
        self._curve: Points | None = None
        self._reason: str | None = "the supervisor has started"
        self._reason_is_plan = False
        self._made: dict[str, float] = {}  # dataset → tokens, at the last look
        self._said_at = -EVERY_S
        self._soon = SOON_TIMES  # how often that is still allowed
        self._own: list[Scored] = []
        self._works: set[asyncio.Task[None]] = set()

    async def open(self) -> None:
        """Goes on with what former lives recorded. What cannot be read is forgotten, and the log says so."""
        await self._store.run(forecasts.create_tables)
        try:
            self._active_s, self._plan = await asyncio.to_thread(forecasts.read_progress, self._run)
            self._own = await asyncio.to_thread(forecasts.read_own_results, self._run)
        except RunDirError as error:
            log.warning("former forecasts are not known: %s", error)

    def changed(self, reason: str, *, plan: bool = False) -> None:
        """Something that a forecast rests on is different. `plan`: what is to be done, so that former forecasts meant another.

        Of what changes together, the first change of the plan is the reason: what follows from it says less.
        """
        self._plan += plan
        if self._reason is None or not self._reason_is_plan:
            self._reason, self._reason_is_plan = reason, plan

    def look(self, wishes: Wishes, curve: Curve | None = None) -> None:
        """Call it each second: notes what was made since the last look and what is wanted, and forecasts when that is due.

        `curve`: what a sweep has measured.
        """
        points = curve.points if curve is not None else None
        if points != self._curve:
            self._curve = points
            self.changed("a sweep tells how fast how many requests are")
        if (plan := _plan_of(wishes)) != self._planned:
            self._planned = plan
            self.changed("what is wanted has changed", plan=True)
        clock = time.monotonic()
        active = any(runner.in_flight for runner in self._slots.runners.values())
        if self._looked_at is None:
            self._made = self._made_by_now()  # by former lives
        else:
            self._note(wishes, clock - self._looked_at, active=active)
        self._looked_at = clock
        since_s = clock - self._said_at
        every_s = SOON_S if self._soon else EARLY_EVERY_S if self._active_s < EARLY_S else EVERY_S
        due = (self._reason is not None and since_s >= CHANGE_GAP_S) or (active and since_s >= every_s)
        if due and wishes.run is Want.RUNNING and not self._works:
            reason, self._reason, self._said_at = self._reason or forecasts.EACH_MINUTE, None, clock
            self._begin(self._say(wishes.order, self.observe(wishes), reason, active=active))

    def observe(self, wishes: Wishes) -> dict[str, Observation]:
        """All that a forecast depends on, as it is now, for each lane that has a dataset, and for the engine's in any case."""
        lanes = {LOCAL: [], **lanes_of(wishes)}
        return {lane: self._observe_lane(wishes, lane, names) for lane, names in lanes.items()}

    def _observe_lane(self, wishes: Wishes, lane: str, names: Sequence[str]) -> Observation:
        runners, clock = self._slots.runners, time.monotonic()
        history = self._lanes[lane].history()
        if lane == LOCAL:
            concurrency, curve = wishes.concurrency, self._curve
        else:
            # both at once on one dataset: the engine's requests count in
            shared = wishes.concurrency if any(wishes.datasets[name].route.local for name in names) else 0
            concurrency = max(self._apis[lane].concurrency, 1) + shared
            curve = even_curve(history, concurrency)
        return Observation(
            active_s=self._active_s,
            concurrency=concurrency,
            datasets=tuple(dataset_now(runners[name], wishes.datasets[name], clock) for name in names),
            history=history,
            speed_curve=curve,
            budget_stop=BudgetStop.CANCEL if _cancels(wishes, names) else BudgetStop.RESERVE,
        )

    def dataset_done(self, name: str) -> None:
        """A dataset has reached its limit: scores what was said of it."""
        self.changed(f"{name} is done")
        self._begin(self._score(f"dataset:{name}"))

    async def finish(self, *, run_is_done: bool) -> None:
        """The supervisor leaves. A run that is done is scored."""
        await asyncio.gather(*self._works, return_exceptions=True)
        if run_is_done:
            await self._score(RUN)

    def _begin(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._works.add(task)
        task.add_done_callback(self._works.discard)

    def _note(self, wishes: Wishes, seconds: float, *, active: bool) -> None:
        self._active_s += seconds if active else 0.0
        lanes, engine = lanes_of(wishes), self._engine_tokens(seconds)
        before, self._made = self._made, self._made_by_now()
        for name, datasets in lanes.items():
            # where the engine does not tell, or is not alone, ages tell what the requests in flight have made
            alone = name == LOCAL and len(lanes) == 1
            made = sum(self._made[dataset] - before[dataset] for dataset in datasets)
            running = sum(self._slots.runners[dataset].in_flight for dataset in datasets)
            self._busy_s[name] = self._busy_s[name] + seconds if running else 0.0
            if self._busy_s[name] > RAMP_S:
                self._lanes[name].add(seconds, engine if alone and engine is not None else made, running)

    def _made_by_now(self) -> dict[str, float]:
        clock = time.monotonic()
        return {name: made_by(runner, clock) for name, runner in self._slots.runners.items()}

    def _engine_tokens(self, seconds: float) -> float | None:
        """Useful ones that the servers made, by their own rates; None where one tells none."""
        lost = sum(runner.lost_tokens for runner in self._slots.runners.values())
        in_vain, self._lost = lost - self._lost, lost
        speeds = [k.sample.decode_tokens_per_s if k.sample else None for k in self._keepers if k.endpoint is not None]
        if len(speeds) != self._ready:
            self._ready = len(speeds)
            self.changed(f"{self._ready} of {len(self._keepers)} replicas ready")
        known = [speed for speed in speeds if speed is not None]
        return sum(known) * seconds - in_vain if len(known) == len(speeds) else None

    async def _say(self, order: Sequence[str], seen: Mapping[str, Observation], reason: str, *, active: bool) -> None:
        scores = [one.sample for one in self._own]
        try:
            said, base = await asyncio.to_thread(_reckon, order, seen, scores)
        except Exception as error:
            log.exception("no forecast could be made")
            self._tell_of(f"No forecast can be made: an error in Headway itself ({type(error).__name__}).")
            return
        self._tell_of(None)
        self._soon = max(self._soon - 1, 0) if said.remaining is None else 0
        kept = Said(time.time(), self._plan, self._active_s, active, reason, said)
        await self._store.run(lambda con: forecasts.write(con, kept, base, engines_part(order, seen)))

    async def _score(self, subject: str) -> None:
        found: list[Scored | None] = []
        plan, active_s, at = self._plan, self._active_s, time.time()
        await self._store.run(lambda con: found.append(forecasts.score(con, subject, plan=plan, active_s=active_s, at=at)))
        self._own += [one for one in found if one is not None]

    def _tell_of(self, problem: str | None) -> None:
        self._bulletin.note(Condition("forecast.failed", "run", problem, "Forecasts are made again."))


def _reckon(order: Sequence[str], seen: Mapping[str, Observation], own: Sequence[Score]) -> tuple[Forecast, Forecast]:
    """On a thread: the forecast as it is said, and by the built-in calibration alone."""
    at_work = {lane: observation for lane, observation in seen.items() if observation.datasets}
    base = side_by_side(order, {lane: forecast(observation) for lane, observation in at_work.items()})
    calibration = recalibrate(own)
    if calibration is BUILT_IN:
        return base, base
    return side_by_side(order, {lane: forecast(observation, calibration) for lane, observation in at_work.items()}), base


def _cancels(wishes: Wishes, names: Sequence[str]) -> bool:
    return all(wishes.datasets[name].at_budget is AtBudget.CANCEL for name in names)


def _plan_of(wishes: Wishes) -> tuple[Any, ...]:
    """What of the wishes tells how much work there is and how it goes. While the run stops or stands still no time counts."""
    return wishes.concurrency, wishes.order, dict(wishes.datasets), dict(wishes.api_caps)
