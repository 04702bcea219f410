"""The metrics of SGLang: its names, labels and help lines, and where the simulator takes the values from.

How they become a page is `exposition.py`'s; what an old SGLang tells instead, `old_metrics.py`'s.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from backend.simulator.counters import Gauges, Histogram, RequestCounts, StreamCounts
from backend.simulator.exposition import Family, Labels, write_page
from backend.simulator.old_metrics import old_families
from backend.simulator.settings import Profile, Settings

if TYPE_CHECKING:
    from backend.simulator.batching import Scheduler
    from backend.simulator.server import SimulatedServer

_TIERS = ("host_hit", "storage_hit")


def render(server: SimulatedServer, *, underscores: bool = False, openmetrics: bool = False) -> str:
    """The whole page; `underscores` spells sglang_ for sglang:, as content negotiation makes the real one do."""
    families = old_families(server) if server.settings.profile is Profile.OLD else _families(_read(server))
    return write_page(families, underscores=underscores, openmetrics=openmetrics)


@dataclass(frozen=True, slots=True)
class _Reading:
    """What the metrics are made of, at one moment."""

    settings: Settings
    scheduler: Scheduler
    counts: RequestCounts
    gauges: Gauges
    pid: int
    request: Labels  # of what is counted by the front end
    rank: Labels  # of what the first tensor-parallel rank alone reports
    ranks: list[Labels]  # every rank reports these: whoever sums over tp_rank counts too much
    streams: list[tuple[Labels, StreamCounts]]


def _read(server: SimulatedServer) -> _Reading:
    settings, engine = server.settings, server.engine
    gauges = engine.read_gauges()
    request = {"model_name": settings.model_name, "engine_type": "unified"}
    rank = request | {"tp_rank": "0", "pp_rank": "0", "moe_ep_rank": "0"}
    return _Reading(
        settings=settings,
        scheduler=engine.scheduler,
        counts=engine.counts,
        gauges=gauges,
        pid=server.pid,
        request=request,
        rank=rank,
        ranks=[rank | {"tp_rank": str(index)} for index in range(settings.tp_size)],
        streams=[
            (request | {"is_streaming": str(stream).lower()}, one) for stream, one in sorted(engine.counts.by_stream.items())
        ],
    )


def _families(now: _Reading) -> Iterator[Family]:
    yield from _http(now)
    yield from _finished(now)
    yield from _work(now)
    yield from _retractions(now)
    yield from _constants(now)
    yield from _gauges(now)
    yield from _histograms(now)
    yield Family(
        "startup_time_seconds",
        "gauge",
        "Engine startup duration by phase in seconds.",
        [(now.request | {"phase": phase}, now.settings.load_s) for phase in ("load_weight", "scheduler_e2e", "tokenizer_e2e")],
    )


def _counter(name: str, description: str, rows: list[tuple[Labels, float]]) -> Family:
    return Family(name, "counter", description, list(rows))


def _http(now: _Reading) -> Iterator[Family]:
    requests = [({"endpoint": path, "method": method}, float(n)) for (path, method), n in now.counts.http_requests.items()]
    responses = [
        ({"endpoint": path, "method": method, "status_code": str(status)}, float(n))
        for (path, method, status), n in now.counts.http_responses.items()
    ]
    yield _counter("http_requests_total", "Total number of HTTP requests by endpoint and method", requests)
    yield _counter("http_responses_total", "Total number of HTTP responses by endpoint and status code", responses)


def _finished(now: _Reading) -> Iterator[Family]:
    """Counters that move when a request finishes."""
    prompt_tokens = [(labels, float(one.prompt_tokens)) for labels, one in now.streams]
    generation_tokens = [(labels, float(one.generation_tokens)) for labels, one in now.streams]
    requests = [(labels, float(one.requests)) for labels, one in now.streams]
    yield _counter("prompt_tokens_total", "Number of prefill tokens processed.", prompt_tokens)
    yield _counter("generation_tokens_total", "Number of generation tokens processed.", generation_tokens)
    yield _counter("num_requests_total", "Number of requests processed.", requests)
    cached = [(now.request | {"cache_source": "device"}, float(now.counts.cached_tokens))] if now.counts.cached_tokens else []
    yield _counter("cached_tokens_total", "Number of cached prompt tokens by source (device/host/storage).", cached)
    aborted = [(now.request, float(now.counts.aborted))] if now.counts.aborted else []
    yield _counter("num_aborted_requests_total", "Number of requests aborted.", aborted)


def _work(now: _Reading) -> Iterator[Family]:
    """Counters that move while the engine works."""
    totals = now.scheduler.totals
    modes = {
        "prefill_compute": totals.prefill_computed,
        "prefill_cache": totals.prefill_cached,
        "decode": now.scheduler.decoded_total,
    }
    yield _counter(
        "realtime_tokens_total",
        "Total number of tokens processed (updated on each log interval). mode: prefill_compute, prefill_cache, decode.",
        [(now.rank | {"mode": mode}, float(value)) for mode, value in modes.items()],
    )
    effective = {"input": totals.prefill_computed, "device_hit": totals.prefill_cached} | dict.fromkeys(_TIERS, 0)
    yield _counter(
        "prefill_effective_tokens_total",
        "Effective prefill tokens with retracted-request re-counts excluded, updated on each log interval. mode: "
        "device_hit, host_hit, storage_hit, input. Windowed prefix cache hit rate = rate(sum of *_hit) / rate(sum of all "
        "modes); per-tier rate uses a single *_hit mode in the numerator.",
        [(now.rank | {"mode": mode}, float(value)) for mode, value in effective.items()],
    )
    yield _counter(
        "cuda_graph_passes_total",
        "Total number of forward passes categorized by CUDA graph.",
        [
            (now.rank | {"mode": "prefill_none"}, float(totals.prefill_passes)),
            (now.rank | {"mode": "decode_cuda_graph"}, float(int(now.scheduler.decode_steps))),
        ],
    )


def _retractions(now: _Reading) -> Iterator[Family]:
    totals = now.scheduler.totals
    for name, description, value in (
        ("num_retracted_requests_total", "Total number of retracted requests.", totals.retracted),
        ("num_retracted_input_tokens_total", "Total number of retracted input tokens.", totals.retracted_input),
        ("num_retracted_output_tokens_total", "Total number of retracted output tokens.", totals.retracted_output),
    ):
        yield _counter(name, description, [(one, float(value)) for one in now.ranks] if totals.retracted else [])
    by_process = now.rank | {"pid": str(now.pid)}
    for name, description, value in (
        ("num_retracted_reqs", "The number of retracted requests.", now.gauges.retracted),
        ("num_paused_reqs", "The number of paused requests by async weight sync.", 0),
    ):
        yield Family(name, "gauge", description, [(by_process, value)])


def _constants(now: _Reading) -> Iterator[Family]:
    pool = now.settings.max_total_tokens
    for name, description, value in (
        ("max_total_num_tokens", "Maximum total number of tokens in the KV cache pool.", pool),
        ("weight_memory_usage_gb", "Memory used by model weights in GB.", 60.0),
        ("kv_cache_memory_usage_gb", "Memory used by the KV cache pools in GB.", 50.0),
        ("page_size", "KV cache page size in tokens.", 1),
        ("num_pages", "Number of KV cache pages.", pool),
        ("context_len", "Maximum context length.", now.settings.context_length),
    ):
        yield Family(name, "gauge", description, [(one, float(value)) for one in now.ranks])


def _gauges(now: _Reading) -> Iterator[Family]:
    """What the last report of the scheduler said."""
    gauges, pool = now.gauges, now.settings.max_total_tokens
    for name, description, value in (
        ("num_running_reqs", "The number of running requests.", gauges.running),
        ("num_queue_reqs", "The number of requests in the waiting queue.", gauges.queued),
        ("num_grammar_queue_reqs", "The number of requests in the grammar waiting queue.", 0),
        ("gen_throughput", "The generation throughput (token/s).", gauges.gen_throughput),
        ("cache_hit_rate", "The prefix cache hit rate.", gauges.cache_hit_rate),
        ("decode_sum_seq_lens", "The sum of all sequence lengths in decode.", gauges.sum_seq_lens),
        ("token_usage", "The token usage.", gauges.token_usage),
        ("full_token_usage", "The token usage for full attention layers.", gauges.token_usage),
        ("swa_token_usage", "The token usage for SWA layers.", 0),
        ("mamba_usage", "The token usage for Mamba layers.", 0),
        ("num_used_tokens", "The number of used tokens.", gauges.used_tokens),
        ("kv_available_tokens", "Number of free token slots in the KV cache pool.", pool - gauges.used_tokens),
        ("kv_evictable_tokens", "Number of evictable (radix-cached) token slots in the KV cache pool.", 0),
        ("kv_used_tokens", "Number of actively used token slots in the KV cache pool.", gauges.used_tokens),
        (
            "spec_accept_length",
            "Mean acceptance length of speculative decoding (accepted drafts + bonus token per forward).",
            gauges.accept_length,
        ),
        (
            "spec_accept_rate",
            "Speculative acceptance rate (`accepted drafts / proposed drafts` in batch).",
            max(gauges.accept_length - 1, 0) / 3,
        ),
        ("utilization", "The utilization.", 0),
        ("fwd_occupancy", "Forward pass GPU occupancy percentage.", math.nan),
        ("new_token_ratio", "The new token ratio.", gauges.new_token_ratio),
        ("is_cuda_graph", "Whether the batch is using CUDA graph.", 0),
    ):
        yield Family(name, "gauge", description, [(now.rank, value)])


def _histograms(now: _Reading) -> Iterator[Family]:
    """Of finished requests; one that has counted nothing is left out."""
    counts, streams = now.counts, now.streams
    rows: list[tuple[Labels, Histogram]]
    for name, description, rows in (
        (
            "time_to_first_token_seconds",
            "Histogram of time to first token in seconds.",
            [(labels, one.time_to_first_token) for labels, one in streams],
        ),
        (
            "e2e_request_latency_seconds",
            "Histogram of End-to-end request latency in seconds",
            [(labels, one.e2e_latency) for labels, one in streams],
        ),
        (
            "request_time_per_output_token_seconds",
            "Per-request TPOT in seconds: (finished_time - first_token_time) / (completion_tokens - 1).",
            [(labels, one.time_per_output_token) for labels, one in streams],
        ),
        ("prompt_tokens_histogram", "Histogram of prompt token length.", [(now.request, counts.prompt_lengths)]),
        ("generation_tokens_histogram", "Histogram of generation token length.", [(now.request, counts.generation_lengths)]),
        ("inter_token_latency_seconds", "Histogram of inter-token latency in seconds.", [(now.request, counts.inter_token)]),
        ("queue_time_seconds", "Histogram of queueing time in seconds.", [(now.rank, counts.queue_time)]),
    ):
        yield Family(name, "histogram", description, [(labels, one) for labels, one in rows if one.count])
