"""PURE: a comparison in words: the answer, the figures and the cells of its tables. What it rests on: `compare_notes.py`."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date
from decimal import Decimal
from typing import Final

from backend.costs.comparison import ApiWay, Comparison, Estimate
from backend.costs.limits import Binding
from backend.costs.prices import Price, Prices, blended_usd_per_mtok
from backend.costs.staying import UsdRange
from backend.forecast.calibrate import Range
from backend.report.compare import CompareView, Point, box_point
from backend.report.compare_options import ASSUMED, MEASURED, Option
from backend.report.end_words import length_words, range_words
from backend.report.figures import Figure
from backend.report.formatting import DASH, compact, number
from backend.report.money import UNKNOWN, usd, usd_range

BOX: Final = "This box"
TRIFLE: Final = Decimal("0.02")
WAY_HEAD: Final = ("Way", "Time", "Cost", "A million tokens", "Tokens/s", "Limited by", "Pays above", "Choice", "Prices")
DATASET_HEAD: Final = (
    "Dataset", "Here, in its turn", "Cost here", "There, sent now", "Cost there", "Tokens/s there", "Pays above", "Limited by",
)  # fmt: skip


def compare_sentence(view: CompareView) -> str:
    """The answer."""
    found = view.comparison
    if found is None:
        return "Nothing waits to be made, so there is nothing to send elsewhere."
    here = found.local
    staying = f"Staying takes {range_words(here.seconds)}" if here.seconds else "How long staying takes is not known yet"
    if here.usd is not None:
        staying += f" and {usd_range(here.usd)}"
    chosen = view.way(view.best) if view.best else None
    if chosen is None:
        return f"{staying}."
    option, way = chosen
    name = option.api.name
    if not option.configured:
        name = f"{option.api.model} at {_seller(option)}{'' if view.sold else ', another model,'}"
    elif option.speed_source == MEASURED:
        name += ", as measured,"
    going = f"{name} would take {range_words(way.whole.seconds)}" if way.whole.seconds else f"{name}: time not known"
    cost = f" and {usd_range(way.whole.usd)}" if way.whole.usd is not None else "; what it costs is not known"
    rest = _in_flight_usd(found, way)
    beside = f", beside {usd_range(rest)} for what is in flight here" if rest is not None else ""
    return f"{staying}; {going}{cost}{beside}."


def compare_figures(view: CompareView) -> list[Figure]:
    """The head of the page: what waits, both sides, and where the choice turns."""
    found = view.comparison
    if found is None:
        return []
    here = found.local
    requests = f"completion tokens of {compact(found.requests.p50)} requests that are not begun"
    figures = [
        Figure("waits", "To make", _compact_range(found.tokens), "", requests),
        Figure("box", BOX, _time(here.seconds), "", _keeping_words(here)),
    ]
    chosen = view.way(view.best) if view.best else None
    if chosen is None:
        return figures
    option, way = chosen
    name = option.api.name if option.configured else _seller(option)
    even, until = way.break_even_gpu_hour_usd, way.whole.seconds
    figures.append(Figure("api", name, _time(until), "", f"{usd_range(way.whole.usd)} · {option.api.model}"))
    speed = f"tokens/s; here {_compact_range(here.tokens_per_s)}"
    figures.append(Figure("speed", f"Speed of {name}", _compact_range(way.whole.tokens_per_s), "", speed))
    each = f"a GPU-hour; dearer, and {name} pays" if even is not None else _no_break_even(view, way)
    figures.append(Figure("even", "Break-even price", usd(even) if even is not None else DASH, "", each))
    if here.seconds is not None and until is not None:
        holds = f"the box holds later ones, 9 times of 10; nearer ones, down to {length_words(until.p90)}, {name}"
        if until.p90 >= here.seconds.p90:
            holds = f"the box holds later ones, 9 times of 10; {name} none that are nearer"
        figures.append(Figure("deadline", "Break-even deadline", length_words(here.seconds.p90), "", holds))
    return figures


def way_rows(view: CompareView) -> list[list[str]]:
    """A row a way, the box first, under `WAY_HEAD`."""
    found = view.comparison
    if found is None:
        return []
    tokens = found.tokens.p50
    here = found.local
    each = usd(blended_usd_per_mtok(here.usd.p50 if here.usd else None, tokens))
    choice = _choice(view, "", box_point(found))
    speed = _compact_range(here.tokens_per_s)
    box = [BOX, _time(here.seconds), usd_range(here.usd), each, speed, "its own speed", DASH, choice, view.box_words]
    return [box, *(_way_row(view, option, way, tokens) for option, way in zip(view.options, found.ways, strict=True))]


def dataset_rows(view: CompareView, name: str) -> list[list[str]]:
    """A row a dataset that waits, against one API, under `DATASET_HEAD`."""
    chosen = view.way(name)
    if view.comparison is None or chosen is None:
        return []
    option, way = chosen
    rows = []
    for dataset, there in way.datasets.items():
        here = view.comparison.local_datasets.get(dataset, Estimate(None, None, None))
        limit = _limit_words(option, there.binds)
        even = way.dataset_break_even_usd.get(dataset)
        pays = f"{usd(even)} a GPU-hour" if even is not None else DASH
        costs = [_time(here.seconds), usd_range(here.usd), _time(there.seconds), usd_range(there.usd)]
        rows.append([dataset, *costs, _compact_range(there.tokens_per_s), pays, limit])
    return rows


def price_words(prices: Prices) -> str:
    """Each price with what it is for, then who says so and of when it is."""
    named = (
        ("in", prices.input_per_mtok),
        ("cached", prices.cached_input_per_mtok),
        ("out", prices.output_per_mtok),
        ("reasoning", prices.reasoning_per_mtok),
        ("a request", prices.request),
    )
    told = [f"{usd(price.value)} {name}" for name, price in named if price is not None]
    if not told:
        return f"{UNKNOWN}: write them into run.toml, or refresh them"
    if not prices.known:
        told.append("the rest unknown")
    return f"{', '.join(told)}\n{_sources(prices.all)}"


def _sources(prices: Sequence[Price]) -> str:
    found: dict[str, list[date]] = {}
    for price in prices:
        found.setdefault(price.source, []).extend([price.as_of] if price.as_of is not None else [])
    return "; ".join(f"{source}, {_day(max(days))}" if days else source for source, days in found.items())


def _day(day: date) -> str:
    return f"{day.day} {day:%b %Y}"


def _way_row(view: CompareView, option: Option, way: ApiWay, tokens: float) -> list[str]:
    whole = way.whole
    each = usd(blended_usd_per_mtok(whole.usd.p50 if whole.usd else None, tokens))
    even = f"{usd(way.break_even_gpu_hour_usd)} a GPU-hour" if way.break_even_gpu_hour_usd is not None else DASH
    cost = usd_range(whole.usd)
    rest = _in_flight_usd(view.comparison, way)
    if rest is not None:
        cost += f"\n+ {usd_range(rest)} here"
    name = option.api.name if option.configured else _seller(option)
    speed = _compact_range(whole.tokens_per_s) + (f"\n{MEASURED}" if option.speed_source == MEASURED else "")
    return [
        f"{name}\n{option.api.model}", _time(whole.seconds), cost, each, speed,
        _limit_words(option, whole.binds), even, _choice(view, option.api.name, way.point), price_words(option.api.prices),
    ]  # fmt: skip


def _limit_words(option: Option, binds: Binding | None) -> str:
    limits = option.api.limits
    match binds:
        case Binding.STREAMS:
            source = f", {ASSUMED}" if option.streams_source == ASSUMED else ""
            return f"{number(limits.streams)} requests at once{source}"
        case Binding.REQUESTS:
            return f"{number(limits.requests_per_minute)} requests a minute"
        case Binding.TOKENS:
            return f"{compact(limits.tokens_per_minute)} tokens a minute"
        case Binding.LONGEST:
            return f"the longest answer, at {option.api.speed.tokens_per_s:.0f} tokens/s"
        case Binding.BOX:
            return "what is in flight here"
        case None:
            return DASH


def _choice(view: CompareView, name: str, point: Point | None) -> str:
    """Where a way stands among all: on the front, or beaten in time and cost by another one."""
    if point is None:
        return DASH
    if name not in view.front:
        return "beaten in both"
    fastest = point[0] <= min(seconds for seconds, _ in view.front.values())
    cheapest = point[1] <= min(usd for _, usd in view.front.values())
    if fastest and cheapest:
        return "fastest and cheapest"
    return "fastest" if fastest else "cheapest" if cheapest else "in between"


def _in_flight_usd(found: Comparison | None, way: ApiWay) -> UsdRange | None:
    """What the box costs until its requests in flight have finished, where that is no trifle beside the API's bill."""
    here = found.finishing.usd if found is not None and found.finishing is not None else None
    return here if here is not None and way.whole.usd is not None and here.p50 > way.whole.usd.p50 * TRIFLE else None


def _keeping_words(here: Estimate) -> str:
    return f"{usd_range(here.usd)} to keep it until then" if here.usd is not None else "what it costs to keep it is not known"


def _no_break_even(view: CompareView, way: ApiWay) -> str:
    if view.case.box.gpus is None:
        return "not known: how many GPUs are paid for is not (costs.gpus)"
    if way.whole.usd is None:
        return "not known, as a price of the API is not"
    return "not known, as the box's time is not"


def _seller(option: Option) -> str:
    """Who sells it; a provider's name may carry the model's behind a colon, to tell two of its models apart."""
    return option.api.name.removesuffix(f": {option.api.model}")


def _time(seconds: Range | None) -> str:
    return range_words(seconds) if seconds is not None else DASH


def _compact_range(values: Range | None) -> str:
    if values is None:
        return DASH
    low, high = compact(values.p10), compact(values.p90)
    return low if low == high else f"{low}–{high}"
