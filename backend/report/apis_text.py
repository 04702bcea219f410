"""PURE: what a run spends at its APIs, in words, columns and a figure. None is "–" or "unknown", never 0."""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal

from backend.heartbeat import SupervisorState
from backend.records import ApiState, ApiStatus
from backend.report.figures import Figure
from backend.report.formatting import DASH, compact, number, table
from backend.report.money import usd
from backend.report.views import RunView

HEAD = ("API", "state", "in flight", "of", "samples", "tokens", "tok/s", "spent", "cap", "$/min", "projected")
API_HEAD = ("API", "State", "In flight", "Samples", "Tokens/s", "Spent", "A minute", "Projected")


def used(view: RunView) -> tuple[ApiStatus, ...]:
    """The APIs that have made something, or are asked to."""
    return tuple(api for api in view.apis if api.state is not ApiState.IDLE or api.finished_samples or api.spent_usd)


def apis_text(view: RunView) -> str:
    """A line for each API in use, then why one does not do more; empty where none is."""
    rows = [_row(api) for api in used(view)]
    if not rows:
        return ""
    reasons = [f"{api.name}: {api.reason}" for api in used(view) if api.reason]
    routes = [f"{d.name} → {d.route.replace('both:', 'local and ')}" for d in view.datasets if d.route != "local"]
    title = [] if view.supervisor.state is SupervisorState.ALIVE else ["As last said:"]
    return "\n".join([*title, table(HEAD, rows, left=2), *([f"Routes: {', '.join(routes)}"] if routes else []), *reasons])


def routes_sentence(view: RunView) -> str:
    """Where the datasets go."""
    away = [d for d in view.datasets if d.route != "local"]
    if not away:
        return "Every dataset goes to the engine."
    return ". ".join(f"{d.name} goes to {_place(d.route)}" for d in away) + "."


def switch_words(view: RunView, api: str, datasets: Sequence[str], *, both: bool) -> str:
    """What pressing Switch does, and what bounds its price."""
    if not datasets:
        return "Choose at least one dataset."
    status = next((one for one in view.apis if one.name == api), None)
    cap = None if status is None else status.cap_usd
    spent = None if status is None else status.spent_usd
    bound = (
        f"There is no spend cap: set api.{api}.spend_cap_usd to have one."
        if cap is None
        else f"It never costs more than {money(cap)} altogether; {money(spent)} of that are spent."
    )
    where = f"the engine and {api} at once" if both else api
    return (
        f"New requests of {', '.join(datasets)} go to {where}; those in flight finish where they are. Prompts leave this box. "
        f"{bound} You can go back at any time."
    )


def api_rows(view: RunView) -> list[list[str]]:
    """The rows below API_HEAD: every API of run.toml, with the reason beside its state."""
    return [
        [
            api.name,
            f"{api.state.value}{', probing' if api.probing else ''}{f': {api.reason}' if api.reason else ''}",
            f"{number(api.in_flight)} of {number(api.concurrency)}",
            number(api.finished_samples),
            number(api.tokens_per_s),
            f"{money(api.spent_usd)}{f' of {money(api.cap_usd)}' if api.cap_usd is not None else ''}",
            DASH if api.usd_per_minute is None else money(api.usd_per_minute),
            DASH if api.projected_usd is None else money(api.projected_usd),
        ]
        for api in view.apis
    ]


def _place(route: str) -> str:
    return f"the engine and {route.removeprefix('both:')}" if route.startswith("both:") else route


def money(amount: float | None) -> str:
    """US dollars; "unknown" for None."""
    return usd(None if amount is None else Decimal(repr(amount)))


def spend_figure(view: RunView) -> Figure | None:
    """What has been spent at all APIs together; None where none was used."""
    apis = used(view)
    if not apis:
        return None
    spent, per_minute, projected = (
        _sum([getattr(api, field) for api in apis]) for field in ("spent_usd", "usd_per_minute", "projected_usd")
    )
    caps = _sum([api.cap_usd for api in apis])
    alive = view.supervisor.state is SupervisorState.ALIVE
    parts = [f"{money(per_minute)}/min" if alive and per_minute is not None else None]
    parts.append(f"projected {money(projected)}" if projected is not None else None)
    parts.append(f"up to {money(unsure)} more unsure" if (unsure := sum(api.unsure_usd for api in apis)) else None)
    parts += [api.reason for api in apis if api.reason and api.state is not ApiState.WAITING][:1]
    note = " · ".join(part for part in parts if part) or ", ".join(api.name for api in apis)
    return Figure("spend", "API spend", money(spent), "" if caps is None else f"of {money(caps)}", note)


def _row(api: ApiStatus) -> list[str]:
    return [
        api.name,
        f"{api.state.value}, probing" if api.probing else api.state.value,
        number(api.in_flight),
        number(api.concurrency),
        number(api.finished_samples),
        compact(api.completion_tokens),
        number(api.tokens_per_s),
        money(api.spent_usd),
        DASH if api.cap_usd is None else money(api.cap_usd),
        DASH if api.usd_per_minute is None else money(api.usd_per_minute),
        DASH if api.projected_usd is None else money(api.projected_usd),
    ]


def _sum(amounts: list[float | None]) -> float | None:
    known = [amount for amount in amounts if amount is not None]
    return sum(known) if known and len(known) == len(amounts) else None
