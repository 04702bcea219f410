"""Counters to rates: what grew between two looks at a number that only ever grows within one life of its process."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from backend.job.engine_loads import EngineLoad
from backend.job.engine_metrics import EngineMetrics

LONGEST_GAP_S: Final = 60.0


@dataclass(frozen=True, slots=True)
class Growth:
    """By how much a counter grew, and in what time."""

    increase: float
    seconds: float

    @property
    def per_s(self) -> float:
        """The mean rate."""
        return self.increase / self.seconds


@dataclass(frozen=True, slots=True)
class _Seen:
    value: float
    at: float
    life: str


class CounterRates:
    """Remembers the last value of each counter.

    A counter begins anew when its process does. That is known by the process's identity (`life`), and, should another
    process answer unnoticed, by a value that went down: either way the growth of that interval is unknown, never
    negative, and counting goes on from the new value. So it does after a gap longer than `longest_gap_s` (a mean over
    minutes is not what happens now) and when the clock did not advance.
    """

    def __init__(self, longest_gap_s: float = LONGEST_GAP_S) -> None:
        self._longest_gap_s = longest_gap_s
        self._seen: dict[str, _Seen] = {}

    def growth(self, name: str, value: float | None, at: float, life: str) -> Growth | None:
        """Since the last look at counter `name`, `at` in seconds; None if it is not known (the first look, a restart).

        A `value` of None (it could not be read) leaves the last one to compare the next with.
        """
        if value is None:
            return None
        before = self._seen.get(name)
        self._seen[name] = _Seen(value, at, life)
        if before is None or before.life != life or value < before.value:
            return None
        seconds = at - before.at
        return Growth(value - before.value, seconds) if 0 < seconds <= self._longest_gap_s else None


@dataclass(frozen=True, slots=True, kw_only=True)
class PacedRates:
    """An engine's rates since the look before, and the page they were made of."""

    at: float = float("-inf")  # epoch seconds
    metrics: EngineMetrics = field(default_factory=EngineMetrics)
    prefill_tokens_per_s: float | None = None
    decode_tokens_per_s: float | None = None
    retracted_per_s: float | None = None
    cache_hit_rate: float | None = None  # 0..1 of the prompt tokens of the interval
    first_token_s: float | None = None  # mean of the requests of the interval
    queue_time_s: float | None = None  # likewise


class EngineRates:
    """Makes an engine's rates of what it says every few seconds."""

    def __init__(self) -> None:
        self._counters = CounterRates()

    def pace(self, load: EngineLoad, metrics: EngineMetrics, now: float, life: str) -> PacedRates:
        """The rates since the last call, `now` being in seconds.

        Live token counters are `/metrics`'s, or those of `/v1/loads` for a server without metrics. A counter that moves
        only when requests finish makes no rate here.
        """

        def grown(name: str, value: float | None) -> Growth | None:
            return self._counters.growth(name, value, now, life)

        def rate(name: str, of_metrics: float | None, of_load: float | None) -> float | None:
            # The two count a little differently: each is only ever compared with itself.
            by_metrics, by_load = grown(f"{name} by metrics", of_metrics), grown(f"{name} by load", of_load)
            chosen = by_load if of_metrics is None else by_metrics
            return chosen.per_s if chosen else None

        def ratio(part: Growth | None, whole: Growth | None) -> float | None:
            return part.increase / whole.increase if part and whole and whole.increase else None

        retracted = grown("retracted", metrics.retracted_total)
        cached = grown("cached", metrics.prefill_cache_tokens_total)
        computed = grown("computed", metrics.prefill_compute_tokens_total)
        looked_up = Growth(cached.increase + computed.increase, cached.seconds) if cached and computed else None
        # Without live counters the gauge is what there is; with them it only repeats an old report.
        gauge = metrics.cache_hit_rate if metrics.decode_tokens_total is None else None
        return PacedRates(
            at=now,
            metrics=metrics,
            prefill_tokens_per_s=rate("prefill", metrics.prefill_compute_tokens_total, load.prefilled_tokens),
            decode_tokens_per_s=rate("decode", metrics.decode_tokens_total, load.generated_tokens),
            retracted_per_s=retracted.per_s if retracted else None,
            cache_hit_rate=ratio(cached, looked_up) if gauge is None else gauge,
            first_token_s=ratio(
                grown("first token seconds", metrics.first_token_sum_s), grown("first tokens", metrics.first_token_count)
            ),
            queue_time_s=ratio(
                grown("queue seconds", metrics.queue_time_sum_s), grown("queue times", metrics.queue_time_count)
            ),
        )
