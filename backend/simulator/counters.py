"""Counts and gauges as SGLang keeps them: counters of finished requests, and gauges refreshed at reports only."""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass, field

from backend.simulator.sequences import Sequence

_SECONDS = (0.1, 0.2, 0.4, 0.6, 0.8, 1.0, 2.0, 4.0, 6.0, 8.0, 10.0, 20.0, 40.0, 60.0, 80.0, 100.0, 200.0, 400.0)
_TTFT = _SECONDS
_E2E = (*_SECONDS, 600.0, 1200.0, 1800.0, 2400.0)
_INTER_TOKEN = (
    *(0.002, 0.004, 0.006, 0.008, 0.01, 0.015, 0.02, 0.025, 0.03, 0.035, 0.04, 0.06, 0.08),
    *(0.1, 0.2, 0.4, 0.6, 0.8, 1.0, 2.0, 4.0, 6.0, 8.0),
)
_QUEUE = (
    *(0.0, 0.001, 0.005, 0.01, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 3.0, 4.0, 5.0, 10.0, 15.0, 20.0, 30.0, 40.0, 50.0, 60.0),
    *(70.0, 80.0, 90.0, 100.0, 200.0, 300.0, 400.0, 500.0, 600.0, 700.0, 800.0, 900.0, 1000.0, 1200.0, 1400.0, 1600.0),
    *(1800.0, 2000.0, 2500.0, 3000.0),
)
_TOKENS = (
    *(100.0, 300.0, 500.0, 700.0, 1000.0, 1500.0, 2000.0, 3000.0, 4000.0, 5000.0, 6000.0, 7000.0, 8000.0, 9000.0),
    *(10000.0, 12500.0, 15000.0, 17500.0, 20000.0, 22500.0, 25000.0, 27500.0, 30000.0, 35000.0, 40000.0, 60000.0),
    *(80000.0, 100000.0, 200000.0, 300000.0, 400000.0, 600000.0, 800000.0, 1000000.0, 1100000.0),
)


@dataclass(slots=True)
class Histogram:
    """Counts per bucket (upper bounds, then +Inf) and the sum."""

    bounds: tuple[float, ...]
    counts: list[int] = field(default_factory=list)
    total: float = 0.0

    def __post_init__(self) -> None:
        self.counts = [0] * (len(self.bounds) + 1)

    def observe(self, value: float, times: int = 1) -> None:
        self.counts[bisect_left(self.bounds, value)] += times
        self.total += value * times

    @property
    def count(self) -> int:
        return sum(self.counts)


@dataclass(slots=True)
class StreamCounts:
    """What is counted apart for streamed and other requests."""

    requests: int = 0
    prompt_tokens: int = 0
    generation_tokens: int = 0
    time_to_first_token: Histogram = field(default_factory=lambda: Histogram(_TTFT))
    e2e_latency: Histogram = field(default_factory=lambda: Histogram(_E2E))
    time_per_output_token: Histogram = field(default_factory=lambda: Histogram(_INTER_TOKEN))


@dataclass(slots=True)
class RequestCounts:
    """Counts that move when a request finishes."""

    by_stream: dict[bool, StreamCounts] = field(default_factory=dict)
    cached_tokens: int = 0
    aborted: int = 0
    prompt_lengths: Histogram = field(default_factory=lambda: Histogram(_TOKENS))
    generation_lengths: Histogram = field(default_factory=lambda: Histogram(_TOKENS))
    inter_token: Histogram = field(default_factory=lambda: Histogram(_INTER_TOKEN))
    queue_time: Histogram = field(default_factory=lambda: Histogram(_QUEUE))
    http_requests: dict[tuple[str, str], int] = field(default_factory=dict)
    http_responses: dict[tuple[str, str, int], int] = field(default_factory=dict)

    def of_stream(self, stream: bool) -> StreamCounts:
        return self.by_stream.setdefault(stream, StreamCounts())

    def count_finished(self, sequence: Sequence, *, stream: bool) -> None:
        """One finished request; those aborted in the queue are not counted, as in SGLang."""
        if sequence.finish is None or sequence.finish.was_waiting or sequence.finished_at is None:
            return
        of_stream, end = self.of_stream(stream), sequence.finished_at
        of_stream.requests += 1
        of_stream.prompt_tokens += sequence.prompt_tokens
        of_stream.generation_tokens += sequence.generated
        self.cached_tokens += sequence.cached_tokens
        self.prompt_lengths.observe(sequence.prompt_tokens)
        self.generation_lengths.observe(sequence.generated)
        first = sequence.first_token_at if sequence.first_token_at is not None else end
        of_stream.time_to_first_token.observe(first - sequence.arrived_at)
        of_stream.e2e_latency.observe(end - sequence.arrived_at)
        if sequence.generated > 1:
            pace = (end - first) / (sequence.generated - 1)
            of_stream.time_per_output_token.observe(pace)
            self.inter_token.observe(pace, sequence.generated - 1)
        if sequence.admitted_at is not None:
            self.queue_time.observe(sequence.admitted_at - sequence.arrived_at)


@dataclass(frozen=True, slots=True)
class Gauges:
    """The values of the last report; a scheduler that hangs leaves them as they were."""

    running: int = 0
    queued: int = 0
    gen_throughput: float = 0.0
    cache_hit_rate: float = 0.0
    used_tokens: int = 0
    token_usage: float = 0.0
    sum_seq_lens: int = 0
    accept_length: float = 0.0
    retracted: int = 0
    new_token_ratio: float = 0.7
