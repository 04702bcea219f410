"""The comparison of a run with APIs as one value: the page Compare draws it, and adds nothing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Final

from backend import forecasts
from backend.costs.case import Case
from backend.costs.choice import Plan, cheapest_plan, pareto
from backend.costs.comparison import ApiWay, Comparison, compare
from backend.costs.waiting import as_if_resumed, left_out
from backend.forecast.calibrate import BUILT_IN
from backend.heartbeat import read_heartbeat
from backend.probes import read_probes
from backend.records import JobStatus
from backend.report.compare_inputs import observation_now, read_box, read_texts
from backend.report.compare_options import OPENROUTER, WELL_KNOWN, Assumed, Known, Option, configured_options, listed_options
from backend.report.status import read_status
from backend.report.views import RunView
from backend.run_dir import RunDir, RunDirError

if TYPE_CHECKING:
    from backend.config import RunConfig

LOCAL: Final = "local"  # the route of a dataset whose requests go to the box
Point = tuple[float, Decimal]  # seconds and US dollars, the middles


@dataclass(frozen=True, slots=True)
class CompareView:
    """Everything that is told."""

    view: RunView
    settings: RunConfig
    at: float  # epoch seconds
    observed_at: float | None  # when the observation was made; None: the run has not begun
    case: Case
    options: tuple[Option, ...]  # those of run.toml first
    comparison: Comparison | None  # its ways in the order of `options`; None: nothing waits
    front: Mapping[str, Point]  # the ways that no other one beats in both time and cost, by name; "" is the box
    model: str  # whose list prices are shown
    sold: bool  # whether the run's own model is on the list; if not, others stand in for it
    box_words: str
    prompts_words: str
    resumed: tuple[str, ...]  # paused datasets, counted as if they went on
    left_out: tuple[str, ...]
    sent: tuple[tuple[str, str], ...] = ()  # (dataset, route) of those whose requests go to an API already

    def way(self, name: str) -> tuple[Option, ApiWay] | None:
        """An API of that name with its side of the comparison."""
        if self.comparison is None:
            return None
        pairs = zip(self.options, self.comparison.ways, strict=True)
        return next(((option, way) for option, way in pairs if option.api.name == name), None)

    @property
    def best(self) -> str | None:
        """The API to look at first: of those in run.toml, else of all, the cheapest that has a price."""
        names = [o.api.name for o in self.options if o.configured] or [o.api.name for o in self.options]
        ways = [found[1] for name in names if (found := self.way(name)) is not None]
        priced = [(way.whole.usd.p50, i) for i, way in enumerate(ways) if way.whole.usd is not None]
        if priced:
            return ways[min(priced)[1]].api.name
        return names[0] if names else None


def compare_view(run: RunDir, now: float, assumed: Assumed, model: str | None = None) -> CompareView:
    """`now` in epoch seconds; `model`: compare with its list prices in place of the run's own model's.

    Costs three forecasts and some, about 0.2 s of a core. Raises ConfigError, RunDirError.
    """
    from backend import config

    settings = config.load(run.config)
    view = read_status(run, now, settings=settings)
    basis = forecasts.read_basis(run)
    status = _said(run)
    sent = {d.name: d.route for d in status.datasets if d.route != LOCAL} if status is not None else {}
    observation, resumed = as_if_resumed(observation_now(view, settings, basis, sent))
    box, box_words = read_box(run, settings)
    texts, prompts_words = read_texts(run, view, settings)
    case = Case(observation, box, texts, basis.calibration if basis is not None else BUILT_IN)
    at = datetime.fromtimestamp(now, UTC)
    listed, sold = _listed(model or settings.model.path, assumed, at)
    known = Known(read_probes(run), {api.name: api for api in status.apis} if status is not None else {})
    options = (*configured_options(settings, known, assumed, at), *_named_apart(listed))
    found = compare(case, [option.api for option in options])
    return CompareView(
        view=view,
        settings=settings,
        at=now,
        observed_at=basis.at if basis is not None else None,
        case=case,
        options=options,
        comparison=found,
        front=_front(found),
        model=model or settings.model.path,
        sold=sold,
        box_words=box_words,
        prompts_words=prompts_words,
        resumed=resumed,
        left_out=left_out(observation),
        sent=tuple(sent.items()),
    )


def _said(run: RunDir) -> JobStatus | None:
    """What the supervisor said last; None before that, and where it cannot be read, which the status tells."""
    try:
        heartbeat = read_heartbeat(run)
    except RunDirError:
        return None
    return heartbeat.status if heartbeat is not None else None


def plan_for(view: CompareView, name: str, deadline_s: float) -> Plan | None:
    """Which datasets should go to that API so that all is done in time; None where nothing waits. 0.1 to 0.6 s of a core."""
    option = next((o for o in view.options if o.api.name == name), None)
    return cheapest_plan(view.case, option.api, deadline_s) if option is not None else None


def _listed(model: str, assumed: Assumed, at: datetime) -> tuple[list[Option], bool]:
    own = listed_options(model, assumed, at)
    if own:
        return own, True
    others = {name: listed_options(name, assumed, at) for name in WELL_KNOWN}
    at_openrouter = [o for options in others.values() for o in options if o.api.name == OPENROUTER]
    return [*at_openrouter, *(options[0] for options in others.values() if options and options[0] not in at_openrouter)], False


def _named_apart(options: Sequence[Option]) -> list[Option]:
    """Two models of one provider are told apart by their names."""
    names = [option.api.name for option in options]
    return [
        replace(o, api=replace(o.api, name=f"{o.api.name}: {o.api.model}")) if names.count(o.api.name) > 1 else o
        for o in options
    ]


def box_point(found: Comparison | None) -> Point | None:
    """Of staying; None where time or cost is unknown."""
    if found is None or found.local.seconds is None or found.local.usd is None:
        return None
    return found.local.seconds.p50, found.local.usd.p50


def _front(found: Comparison | None) -> dict[str, Point]:
    ways = {way.api.name: way.point for way in found.ways} if found is not None else {}
    known = [(name, point) for name, point in {**ways, "": box_point(found)}.items() if point is not None]
    return dict(known[i] for i in pareto([point for _, point in known]))
