"""A probe of an API: some prompts of the datasets that are still to be made, within a cap of its own, and what they told.

Its samples are kept like any other. Who sends them is `api_slots.py`; the figures are kept as `backend/probes.py` has it.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Final

from backend.job.api_bill import ApiUsage
from backend.job.rank_test import p_value
from backend.job.spend import Spend, SpendView
from backend.probes import Probe
from backend.records import Json

LEAST_PROMPTS: Final = 16
MOST_PROMPTS: Final = 64
MOST_AT_FIRST: Final = 0.5  # a first chunk with more of the text tells no speed
ALIKE_ABOVE: Final = 0.05  # p-value from which lengths count as not different
SMALLEST_TOLD_USD: Final = 1e-6
PROMPTS, CAP_USD = "prompts", "cap_usd"


@dataclass(frozen=True, slots=True)
class ProbeAnswer:
    """One whole answer of a probe."""

    dataset: str
    usage: ApiUsage
    first_token_s: float | None
    took_s: float
    first_share: float  # of the text, that came with the first chunk
    cost_usd: float | None
    listed_usd: float | None

    @property
    def tokens_per_s(self) -> float | None:
        """Of the stream, from its first chunk on; None where that was nearly all of it."""
        tokens = self.usage.completion_tokens
        if not tokens or self.first_token_s is None or self.took_s <= self.first_token_s or self.first_share > MOST_AT_FIRST:
            return None
        return tokens * (1.0 - self.first_share) / (self.took_s - self.first_token_s)


@dataclass(slots=True)
class ProbeOrder:
    """A probe under way."""

    prompts: int
    spend: Spend
    quotas: dict[str, int]  # dataset → prompts of it that are still to be sent
    who: str
    asked: int = 0
    refused: int = 0  # answers 429
    failed: int = 0  # requests that ended without an answer for good
    in_flight: int = 0
    streams: int = 0  # in flight at once, at most
    answers: list[ProbeAnswer] = field(default_factory=list)
    ended: str | None = None  # why it sends no more

    def wants(self, dataset: str) -> bool:
        """Whether the next prompt of that dataset is to be sent."""
        return self.ended is None and self.quotas.get(dataset, 0) > 0

    def took(self, dataset: str) -> None:
        """One is sent."""
        self.quotas[dataset] -= 1
        self.in_flight += 1
        self.asked += 1
        self.streams = max(self.streams, self.in_flight)

    def released(self, dataset: str, *, again: bool) -> None:
        """It has ended; `again`: without an answer, another one is to be sent unless the probe sends no more."""
        self.in_flight -= 1
        if again and self.ended is None:
            self.quotas[dataset] += 1
            self.asked -= 1

    def is_spent(self) -> None:
        """The next request does not fit below the cap."""
        if not self.in_flight:
            self.end(f"its cap of ${self.spend.cap_usd:g} leaves no room for a further prompt at its worst")

    def end(self, reason: str) -> None:
        """It sends no more."""
        self.ended = self.ended or reason

    @property
    def is_over(self) -> bool:
        """Nothing is in flight and nothing more will be sent."""
        return not self.in_flight and (self.ended is not None or not any(self.quotas.values()))


def share_out(prompts: int, available: Mapping[str, int | None]) -> dict[str, int]:
    """Prompts of each dataset, as evenly as what waits of them allows (None: as many as one likes)."""
    quotas = dict.fromkeys(available, 0)
    while sum(quotas.values()) < prompts:
        open_ones = [name for name, count in available.items() if count is None or quotas[name] < count]
        if not open_ones:
            break
        quotas[min(open_ones, key=lambda name: quotas[name])] += 1
    return quotas


def read_order(value: Json) -> tuple[int, float]:
    """Prompts and cap in USD of an intent's value. Raises ValueError with a sentence."""
    prompts, cap = value.get(PROMPTS), value.get(CAP_USD)
    if not isinstance(prompts, int) or isinstance(prompts, bool) or not LEAST_PROMPTS <= prompts <= MOST_PROMPTS:
        raise ValueError(f"A probe takes {LEAST_PROMPTS} to {MOST_PROMPTS} prompts, not {prompts!r}.")
    if not isinstance(cap, int | float) or isinstance(cap, bool) or not 0 < cap < math.inf:
        raise ValueError(f"A probe needs a cap in USD above 0, not {cap!r}.")
    return prompts, float(cap)


def figures(
    order: ProbeOrder,
    local_lengths: Mapping[str, Sequence[int]],
    *,
    api: str,
    model: str,
    answered_model: str | None,
    at: float,
    limits: tuple[int | None, int | None],
) -> Probe:
    """What the probe told. `local_lengths`: finished samples of the engine, by dataset; `limits`: requests, tokens a minute."""
    answers = order.answers
    speeds = [speed for answer in answers if (speed := answer.tokens_per_s) is not None]
    firsts = [answer.first_token_s for answer in answers if answer.first_token_s is not None]
    probed = {answer.dataset for answer in answers}
    local = [length for dataset in probed for length in local_lengths.get(dataset, ())]
    strata = [
        ([a.usage.completion_tokens or 0 for a in answers if a.dataset == dataset], local_lengths.get(dataset, ()))
        for dataset in sorted(probed)
    ]
    return Probe(
        api=api,
        model=model,
        at=at,
        asked=order.asked,
        answered=len(answers),
        failed=order.failed,
        rate_limited=order.refused,
        streams=order.streams,
        answered_model=answered_model,
        first_token_s=statistics.median(firsts) if firsts else None,
        stream_tokens_per_s=statistics.median(speeds) if speeds else None,
        stream_log_sd=statistics.stdev(map(math.log, speeds)) if len(speeds) > 1 else None,
        prompt_tokens=_sum([answer.usage.prompt_tokens for answer in answers]),
        cached_tokens=_sum([answer.usage.cached_tokens for answer in answers]),
        completion_tokens=_sum([answer.usage.completion_tokens for answer in answers]),
        reasoning_tokens=_sum([answer.usage.reasoning_tokens for answer in answers]),
        cost_usd=_usd([answer.cost_usd for answer in answers]),
        cost_by_prices_usd=_usd([answer.listed_usd for answer in answers]),
        local_mean_tokens=statistics.fmean(local) if local else None,
        lengths_p_value=p_value(strata),
        requests_per_minute=limits[0],
        tokens_per_minute=limits[1],
    )


def sentence(probe: Probe, ended: str | None, spent: SpendView) -> str:
    """What was measured, for the event and the terminal. `spent` is the probe's account, with what made no sample."""
    parts = [f"{probe.answered} of {probe.asked} prompts answered"]
    if probe.stream_tokens_per_s is not None:
        parts.append(f"{probe.stream_tokens_per_s:.0f} tokens/s a stream")
    if probe.first_token_s is not None:
        parts.append(f"{probe.first_token_s:.2f} s to the first token")
    if probe.cost_usd is not None:
        listed = probe.cost_by_prices_usd
        parts.append(f"${probe.cost_usd:.6f} paid" + (f" (by the prices ${listed:.6f})" if listed is not None else ""))
    lost_usd = spent.spent_usd - float(probe.cost_usd or 0)
    if lost_usd > SMALLEST_TOLD_USD and (probe.cost_usd is not None or not probe.answered):
        parts.append(f"${lost_usd:.6f} paid for answers that could not be kept")
    elif probe.cost_usd is None:
        parts.append("cost unknown" if probe.answered else "nothing paid")
    if (open_usd := spent.unsure_usd + spent.reserved_usd) > SMALLEST_TOLD_USD:
        parts.append(f"up to ${open_usd:.6f} more, whose bill is not known")
    if probe.rate_limited:
        parts.append(f"{probe.rate_limited} times asked to wait (429)")
    words = f"{probe.api} was probed: {', '.join(parts)}."
    if probe.lengths_p_value is not None and probe.mean_tokens is not None and probe.local_mean_tokens is not None:
        means = f"{probe.mean_tokens:.0f} tokens on average, {probe.local_mean_tokens:.0f} on the box"
        differ = probe.lengths_p_value < ALIKE_ABOVE
        verdict = "Answers differ in length more than chance explains" if differ else "Lengths do not differ beyond chance"
        words += f" {verdict} ({means}; p = {probe.lengths_p_value:.2g})."
    return words + (f" It ended early: {ended}." if ended else "")


def _sum(counts: Sequence[int | None]) -> int | None:
    known = [count for count in counts if count is not None]
    return sum(known) if known and len(known) == len(counts) else None


def _usd(costs: Sequence[float | None]) -> Decimal | None:
    known = [Decimal(repr(cost)) for cost in costs if cost is not None]
    return sum(known, Decimal(0)) if known and len(known) == len(costs) else None
