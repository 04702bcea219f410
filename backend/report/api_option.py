"""PURE: sending the rest to an API as one of the ways to be done sooner. The comparison itself is `compare.py`'s."""

from __future__ import annotations

from collections.abc import Sequence

from backend.report.compare import CompareView
from backend.report.money import usd_range
from backend.report.options import Option, in_time


def api_option(view: CompareView) -> Option | None:
    """The fastest of the APIs that run.toml names; None without one whose time is known, or where nothing waits."""
    if view.comparison is None:
        return None
    pairs = zip(view.options, view.comparison.ways, strict=True)
    known = [(way.whole.seconds, way) for option, way in pairs if option.configured and way.whole.seconds is not None]
    if not known:
        return None
    seconds, way = min(known, key=lambda pair: pair[0].p50)
    cost = usd_range(way.whole.usd) if way.whole.usd is not None else "a price that is not known"
    return Option(f"Send the rest to {way.api.name}", None, seconds, (cost, f"answers of {way.api.model}"))


def with_api(options: Sequence[Option], offer: Option | None, deadline_in_s: float | None) -> tuple[Option, ...]:
    """The options with that one among them, the soonest first."""
    if offer is None or not options:
        return tuple(options)
    return tuple(sorted([*options, in_time(offer, deadline_in_s)], key=lambda option: option.remaining.p50))
