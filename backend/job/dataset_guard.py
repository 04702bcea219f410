"""What one dataset is judged by, what it is held for, and how it goes on all the same.

Which samples count for what is decided here, when that is enough by `guard.py`. Samples of former lives and samples made again
are not judged: what a killed supervisor had in flight is missing among the former, and the latter were chosen for being bad.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Final

from backend.config import GuardsConfig
from backend.holds import Example, GuardKind, Hold, limit_after, percent, words_after
from backend.job.guard import Finding, Guard
from backend.outcomes import BAD, NearDuplicates, outcome_of
from backend.records import Outcome, Prompt, Row

EXAMPLES: Final = 3
REPEATED: Final = "repeats others"  # a near-duplicate: no outcome, because it takes other texts to tell
SHORTEST: Final = "among the shortest"
LONGEST: Final = "among the longest"

_OF_OUTCOME: Final = {Outcome.TRUNCATED: GuardKind.TRUNCATED, Outcome.REJECTED: GuardKind.REJECTED} | dict.fromkeys(
    BAD, GuardKind.BAD
)
_NOUN: Final = {
    GuardKind.BAD: "are bad answers",
    GuardKind.TRUNCATED: "were ended by the cap on new tokens",
    GuardKind.REJECTED: "were refused by the server",
}


class DatasetGuard:
    """Judges the samples of one dataset as they come."""

    def __init__(self, settings: GuardsConfig, holds: Sequence[Hold], *, intents: Callable[[], int]) -> None:
        """`holds` are those of former lives, oldest first; `intents` tells how many intents have been accepted."""
        self.enabled = settings.enabled
        self.holds = list(holds)
        self.unsaved = False  # `holds` has what the ledger has not
        self._intents = intents
        self._guard = Guard(_limits(settings) if settings.enabled else {})
        self._near = NearDuplicates()
        self._seen: Counter[str] = Counter()  # what was wrong, over all that finished
        self._worst: dict[str, list[tuple[int, Example]]] = {}  # what is wrong → how bad, and where it is found
        for hold in holds:
            if hold.lifted:
                self._guard.set_limit(hold.kind, limit_after(hold))

    @property
    def hold(self) -> Hold | None:
        """Why the dataset is held now."""
        return self.holds[-1] if self.enabled and self.holds and not self.holds[-1].lifted else None

    def started(self, prompt: Prompt) -> None:
        """A request for the prompt takes a slot; for how many-th time does not matter."""
        if self.enabled and prompt.attempt == 1:
            self._guard.started(prompt.sample_id)

    def finished(self, prompt: Prompt, row: Row) -> None:
        """A durable sample. `hold` tells afterwards whether it was one too many."""
        if not self.enabled or prompt.attempt > 1:
            return
        outcome = outcome_of(row)
        kind, what = _OF_OUTCOME.get(outcome), outcome.value.replace("_", " ")
        if kind in (None, GuardKind.TRUNCATED) and self._near.add(row.facts.simhash, row.facts.answer_tokens):
            kind, what = GuardKind.BAD, REPEATED
        kinds = {one for one in (kind, _OF_OUTCOME.get(outcome)) if one is not None}
        tokens = row.completion_tokens
        self._note(row, what if kinds else None)
        found = self._guard.finished(prompt.sample_id, kinds, None if outcome is Outcome.REJECTED else tokens)
        if found is not None and self.hold is None:
            examples = tuple(self._examples(found.kind))
            reason = self._reason(found)
            self.holds.append(Hold(found.kind, found.measured, found.limit, reason, row.finished_at, self._intents(), examples))
            self.unsaved = True

    def cap_changed(self) -> None:
        """Answers have another cap from now on: how many it ends and how long they are is judged anew."""
        self._guard.begin_anew((GuardKind.TRUNCATED, GuardKind.SHORT, GuardKind.LONG))

    def go_on(self) -> str | None:
        """Somebody wants the dataset to go on. Says what that means where it was held, and None where it was not."""
        hold = self.hold
        if hold is None:
            return None
        self.holds[-1] = replace(hold, lifted=True)
        self._guard.set_limit(hold.kind, limit_after(hold))
        return f"goes on anyway; {words_after(hold)}"

    # -- inside ------------------------------------------------------------------------------------------------------------

    def _note(self, row: Row, what: str | None) -> None:
        if what is not None:
            self._seen[what] += 1
            self._consider(what, row.completion_tokens, row)
        if row.finish_reason != Outcome.REJECTED:
            self._consider(SHORTEST, -row.completion_tokens, row)
            self._consider(LONGEST, row.completion_tokens, row)

    def _consider(self, what: str, badness: int, row: Row) -> None:
        """Keeps the worst: those that cost most tokens for nothing. Of equal ones the first."""
        worst = self._worst.setdefault(what, [])
        if len(worst) < EXAMPLES or badness > worst[-1][0]:
            times = (row.started_at, row.finished_at)
            worst.append((badness, Example(row.position, row.turn, row.attempt, what, row.completion_tokens, *times)))
            worst.sort(key=lambda one: -one[0])
            del worst[EXAMPLES:]

    def _examples(self, kind: GuardKind) -> list[Example]:
        """The worst of each thing that is wrong, the most frequent first, then the next worst of each."""
        kinds = {
            GuardKind.SHORT: [SHORTEST],
            GuardKind.LONG: [LONGEST],
            GuardKind.TRUNCATED: [Outcome.TRUNCATED.value],
            GuardKind.REJECTED: [Outcome.REJECTED.value],
            GuardKind.BAD: [what for what, _ in self._seen.most_common() if what not in _OWN_KIND],
        }[kind]
        ranked = [(rank, place) for rank in range(EXAMPLES) for place in range(len(kinds))]
        found = [self._worst[kinds[place]][rank][1] for rank, place in ranked if rank < len(self._worst.get(kinds[place], ()))]
        return found[:EXAMPLES]

    def _reason(self, found: Finding) -> str:
        which = "that were started last" if found.lately else "that were started first"
        if found.hits is None:
            side = "below" if found.kind is GuardKind.SHORT else "above"
            return (
                f"The {found.judged} samples {which} have a mean of {found.measured:,.0f} tokens, {side} the limit of "
                f"{found.limit:,.0f}."
            )
        parts = [f"{count} {what}" for what, count in self._seen.most_common() if what not in _OWN_KIND]
        so_far = f" So far: {', '.join(parts)}." if found.kind is GuardKind.BAD else ""
        return (
            f"Of the {found.judged} samples {which}, {found.hits} {_NOUN[found.kind]}: {percent(found.measured)}, where "
            f"{percent(found.limit)} is the limit.{so_far}"
        )


_OWN_KIND: Final = frozenset({Outcome.TRUNCATED.value, Outcome.REJECTED.value})


def _limits(settings: GuardsConfig) -> dict[GuardKind, float]:
    limits = {
        GuardKind.BAD: settings.max_bad_share,
        GuardKind.TRUNCATED: settings.max_truncated_share,
        GuardKind.REJECTED: settings.max_rejected_share,
        GuardKind.SHORT: settings.min_mean_tokens,
        GuardKind.LONG: settings.max_mean_tokens,
    }
    return {kind: limit for kind, limit in limits.items() if limit is not None}
