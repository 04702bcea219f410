"""The metrics of SGLang 0.4.6: one label, retractions as a gauge, no live token counter."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from backend.simulator.exposition import Family

if TYPE_CHECKING:
    from backend.simulator.server import SimulatedServer


def old_families(server: SimulatedServer) -> Iterator[Family]:
    """All of them, as they are now."""
    engine, gauges = server.engine, server.engine.read_gauges()
    labels = {"model_name": server.settings.model_name}
    streams = list(engine.counts.by_stream.values())
    for name, description, value in (
        ("prompt_tokens_total", "Number of prefill tokens processed.", sum(s.prompt_tokens for s in streams)),
        ("generation_tokens_total", "Number of generation tokens processed.", sum(s.generation_tokens for s in streams)),
        ("num_requests_total", "Number of requests processed.", sum(s.requests for s in streams)),
        ("cached_tokens_total", "Number of cached prompt tokens.", engine.counts.cached_tokens),
    ):
        yield Family(name, "counter", description, [(labels, float(value))])
    for name, description, number in (
        ("num_running_reqs", "The number of running requests.", gauges.running),
        ("num_used_tokens", "The number of used tokens.", gauges.used_tokens),
        ("token_usage", "The token usage.", gauges.token_usage),
        ("gen_throughput", "The generation throughput (token/s).", gauges.gen_throughput),
        ("num_queue_reqs", "The number of requests in the waiting queue.", gauges.queued),
        ("cache_hit_rate", "The prefix cache hit rate.", gauges.cache_hit_rate),
        ("spec_accept_length", "The average acceptance length of speculative decoding.", gauges.accept_length),
        ("total_retracted_reqs", "The total number of retracted requests.", engine.scheduler.totals.retracted),
    ):
        yield Family(name, "gauge", description, [(labels, float(number))])
    for stream in streams:
        for name, description, one in (
            ("time_to_first_token_seconds", "Histogram of time to first token in seconds.", stream.time_to_first_token),
            ("time_per_output_token_seconds", "Histogram of time per output token in seconds.", stream.time_per_output_token),
            ("e2e_request_latency_seconds", "Histogram of End-to-end request latency in seconds", stream.e2e_latency),
        ):
            yield Family(name, "histogram", description, [(labels, one)])
        break
