"""What a quality guard found when it held a dataset: kept as a fact of the ledger, so that it outlives supervisor and browser.

The guards themselves are the job's. That somebody wants to go on all the same is an intent like any other; here is told which
holds that lifts.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from enum import StrEnum
from typing import Any, Final

from backend.records import Intent, IntentAction

DAMAGED: Final = "Headway held it, and what it found cannot be read any more."


class GuardKind(StrEnum):
    """What a guard looks at."""

    BAD = "bad"  # the share of empty, degenerate, thinking-only and repeated answers
    TRUNCATED = "truncated"  # the share of answers that the cap ended
    REJECTED = "rejected"  # the share of prompts that the server refused
    SHORT = "short"  # the mean length, too small
    LONG = "long"  # the mean length, too large


SHARES: Final = (GuardKind.BAD, GuardKind.TRUNCATED, GuardKind.REJECTED)


@dataclass(frozen=True, slots=True)
class Example:
    """Where one of the worst samples is found again, and what is wrong with it. Times are epoch seconds."""

    position: int
    turn: int
    attempt: int
    what: str  # in a few words
    completion_tokens: int
    started_at: float
    finished_at: float


@dataclass(frozen=True, slots=True)
class Hold:
    """One hold of a dataset."""

    kind: GuardKind
    measured: float  # a share 0..1, or a mean in tokens
    limit: float  # likewise
    reason: str  # a sentence
    at: float  # epoch seconds
    intents_before: int  # how many intents had been accepted then
    examples: tuple[Example, ...] = ()
    lifted: bool = False  # somebody wanted to go on since


def limit_after(hold: Hold) -> float:
    """The limit once somebody has seen a hold and wanted to go on: half of what was still good has to go wrong as well."""
    if hold.kind in SHARES:
        return (1 + hold.measured) / 2
    return hold.measured / 2 if hold.kind is GuardKind.SHORT else hold.measured * 2


def words_after(hold: Hold) -> str:
    """What going on means for this guard, as the second half of a sentence."""
    limit = limit_after(hold)
    if hold.kind not in SHARES:
        side = "below" if hold.kind is GuardKind.SHORT else "above"
        return f"for the same reason it is held again only {side} a mean of {limit:,.0f} tokens."
    return f"for the same reason it is held {f'again only above {percent(limit)}' if limit < 1 else 'no more'}."


def percent(share: float) -> str:
    """A share as a reason names it."""
    return f"{100 * share:.3g} %"


def fact_name(dataset: str) -> str:
    """Names the fact of the ledger that holds what `to_json` made."""
    return f"holds:{dataset}"


def to_json(holds: Iterable[Hold]) -> str:
    """All holds of a dataset, oldest first. Which are lifted is not written: the accepted intents tell."""
    return json.dumps([{k: v for k, v in asdict(hold).items() if k != "lifted"} for hold in holds])


def from_json(text: str | None, dataset: str, intents: Sequence[Intent]) -> tuple[Hold, ...]:
    """The holds of a dataset, oldest first, the lifted ones marked. `intents`: all accepted ones, in their order.

    What cannot be read is a hold without examples: it must not be mistaken for none.
    """
    if text is None:
        return ()
    try:
        holds = [_hold(values) for values in json.loads(text)]
    except (ValueError, TypeError, KeyError, AttributeError):
        holds = [Hold(GuardKind.BAD, 1.0, 0.0, DAMAGED, 0.0, 0)]
    return tuple(replace(hold, lifted=_is_lifted(hold, dataset, intents)) for hold in holds)


def lifts(intent: Intent, dataset: str) -> bool:
    """Whether an intent lets a held dataset go on."""
    wants = intent.action is IntentAction.STATE and intent.value.get("want") == "running"
    return wants and intent.subject == f"dataset:{dataset}"


def _is_lifted(hold: Hold, dataset: str, intents: Sequence[Intent]) -> bool:
    return any(lifts(intent, dataset) for intent in intents[hold.intents_before :])


def _hold(values: dict[str, Any]) -> Hold:
    examples = tuple(Example(**example) for example in values["examples"])
    return Hold(**{**values, "kind": GuardKind(values["kind"]), "examples": examples})
