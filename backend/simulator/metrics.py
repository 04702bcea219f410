"""The /metrics page in Prometheus' text format, with SGLang's names, labels and help lines."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from backend.simulator.counters import Histogram
from backend.simulator.settings import Profile

if TYPE_CHECKING:
    from backend.simulator.server import SimulatedServer

Labels = dict[str, str]
_TIERS = ("host_hit", "storage_hit")


@dataclass(frozen=True, slots=True)
class Family:
    """One metric: `kind` is counter, gauge or histogram; rows are (labels, value) or (labels, Histogram)."""

    name: str
    kind: str
    description: str
    rows: list[tuple[Labels, float | Histogram]]


def render(server: SimulatedServer, *, underscores: bool = False, openmetrics: bool = False) -> str:
    """The whole page; `underscores` spells sglang_ for sglang:, as content negotiation makes the real one do."""
    families = _old_families(server) if server.settings.profile is Profile.OLD else _families(server)
    lines: list[str] = []
    for family in families:
        if not family.rows:
            continue
        name = "sglang" + ("_" if underscores else ":") + family.name
        shown = name.removesuffix("_total") if openmetrics and family.kind == "counter" else name
        lines.append(f"# HELP {shown} {family.description}")
        lines.append(f"# TYPE {shown} {family.kind}")
        for labels, value in family.rows:
            if isinstance(value, Histogram):
                lines.extend(_histogram_lines(name, labels, value))
            else:
                lines.append(f"{name}{_braces(labels)} {_number(value)}")
    if openmetrics:
        lines.append("# EOF")
    return "\n".join(lines) + "\n"


def _number(value: float) -> str:
    return "NaN" if math.isnan(value) else str(float(value))


def _braces(labels: Labels) -> str:
    if not labels:
        return ""
    return "{" + ",".join(f'{name}="{value}"' for name, value in sorted(labels.items())) + "}"


def _histogram_lines(name: str, labels: Labels, histogram: Histogram) -> Iterator[str]:
    yield f"{name}_sum{_braces(labels)} {float(histogram.total)}"
    running = 0
    for bound, count in zip([*histogram.bounds, None], histogram.counts, strict=True):
        running += count
        edge = "+Inf" if bound is None else _bound(bound)
        yield f"{name}_bucket{_braces(labels | {'le': edge})} {float(running)}"
    yield f"{name}_count{_braces(labels)} {float(running)}"


def _bound(value: float) -> str:
    return f"{value:.4g}" if value >= 1_000_000 else str(value)


def _families(server: SimulatedServer) -> Iterable[Family]:
    settings, engine = server.settings, server.engine
    gauges = engine.read_gauges()
    counts, totals = engine.counts, engine.scheduler.totals
    request = {"model_name": settings.model_name, "engine_type": "unified"}
    rank = request | {"tp_rank": "0", "pp_rank": "0", "moe_ep_rank": "0"}
    pool = settings.max_total_tokens
    ranks = [rank | {"tp_rank": str(index)} for index in range(settings.tp_size)]

    def gauge(name: str, description: str, value: float, labels: Labels = rank) -> Family:
        return Family(name, "gauge", description, [(labels, value)])

    def counter(name: str, description: str, rows: list[tuple[Labels, float | Histogram]]) -> Family:
        return Family(name, "counter", description, rows)

    def histogram(name: str, description: str, rows: list[tuple[Labels, Histogram]]) -> Family:
        return Family(name, "histogram", description, [(labels, one) for labels, one in rows if one.count])

    streams = [(request | {"is_streaming": str(stream).lower()}, one) for stream, one in sorted(counts.by_stream.items())]
    requests = [({"endpoint": path, "method": method}, float(n)) for (path, method), n in counts.http_requests.items()]
    responses = [
        ({"endpoint": path, "method": method, "status_code": str(status)}, float(n))
        for (path, method, status), n in counts.http_responses.items()
    ]
    yield counter("http_requests_total", "Total number of HTTP requests by endpoint and method", list(requests))
    yield counter("http_responses_total", "Total number of HTTP responses by endpoint and status code", list(responses))
    yield counter(
        "prompt_tokens_total", "Number of prefill tokens processed.", [(labels, one.prompt_tokens) for labels, one in streams]
    )
    yield counter(
        "generation_tokens_total",
        "Number of generation tokens processed.",
        [(labels, one.generation_tokens) for labels, one in streams],
    )
    yield counter("num_requests_total", "Number of requests processed.", [(labels, one.requests) for labels, one in streams])
    cached = [(request | {"cache_source": "device"}, float(counts.cached_tokens))] if counts.cached_tokens else []
    yield counter("cached_tokens_total", "Number of cached prompt tokens by source (device/host/storage).", list(cached))
    aborted = [(request, float(counts.aborted))] if counts.aborted else []
    yield counter("num_aborted_requests_total", "Number of requests aborted.", list(aborted))
    modes = {
        "prefill_compute": totals.prefill_computed,
        "prefill_cache": totals.prefill_cached,
        "decode": engine.scheduler.decoded_total,
    }
    yield counter(
        "realtime_tokens_total",
        "Total number of tokens processed (updated on each log interval). mode: prefill_compute, prefill_cache, decode.",
        [(rank | {"mode": mode}, float(value)) for mode, value in modes.items()],
    )
    effective = {"input": totals.prefill_computed, "device_hit": totals.prefill_cached} | dict.fromkeys(_TIERS, 0)
    yield counter(
        "prefill_effective_tokens_total",
        "Effective prefill tokens with retracted-request re-counts excluded, updated on each log interval. mode: "
        "device_hit, host_hit, storage_hit, input. Windowed prefix cache hit rate = rate(sum of *_hit) / rate(sum of all "
        "modes); per-tier rate uses a single *_hit mode in the numerator.",
        [(rank | {"mode": mode}, float(value)) for mode, value in effective.items()],
    )
    yield counter(
        "cuda_graph_passes_total",
        "Total number of forward passes categorized by CUDA graph.",
        [
            (rank | {"mode": "prefill_none"}, float(totals.prefill_passes)),
            (rank | {"mode": "decode_cuda_graph"}, float(int(engine.scheduler.decode_steps))),
        ],
    )
    # every tensor-parallel rank reports these: whoever sums over tp_rank counts too much
    for name, description, value in (
        ("num_retracted_requests_total", "Total number of retracted requests.", totals.retracted),
        ("num_retracted_input_tokens_total", "Total number of retracted input tokens.", totals.retracted_input),
        ("num_retracted_output_tokens_total", "Total number of retracted output tokens.", totals.retracted_output),
    ):
        yield counter(name, description, [(one, float(value)) for one in ranks] if totals.retracted else [])
    yield gauge("num_retracted_reqs", "The number of retracted requests.", gauges.retracted, rank | {"pid": str(server.pid)})
    yield gauge("num_paused_reqs", "The number of paused requests by async weight sync.", 0, rank | {"pid": str(server.pid)})
    for name, description, constant in (
        ("max_total_num_tokens", "Maximum total number of tokens in the KV cache pool.", pool),
        ("weight_memory_usage_gb", "Memory used by model weights in GB.", 60.0),
        ("kv_cache_memory_usage_gb", "Memory used by the KV cache pools in GB.", 50.0),
        ("page_size", "KV cache page size in tokens.", 1),
        ("num_pages", "Number of KV cache pages.", pool),
        ("context_len", "Maximum context length.", settings.context_length),
    ):
        yield Family(name, "gauge", description, [(one, float(constant)) for one in ranks])
    for name, description, reading in (
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
        yield gauge(name, description, reading)
    yield histogram(
        "time_to_first_token_seconds",
        "Histogram of time to first token in seconds.",
        [(labels, one.time_to_first_token) for labels, one in streams],
    )
    yield histogram(
        "e2e_request_latency_seconds",
        "Histogram of End-to-end request latency in seconds",
        [(labels, one.e2e_latency) for labels, one in streams],
    )
    yield histogram(
        "request_time_per_output_token_seconds",
        "Per-request TPOT in seconds: (finished_time - first_token_time) / (completion_tokens - 1).",
        [(labels, one.time_per_output_token) for labels, one in streams],
    )
    yield histogram("prompt_tokens_histogram", "Histogram of prompt token length.", [(request, counts.prompt_lengths)])
    yield histogram(
        "generation_tokens_histogram", "Histogram of generation token length.", [(request, counts.generation_lengths)]
    )
    yield histogram(
        "inter_token_latency_seconds", "Histogram of inter-token latency in seconds.", [(request, counts.inter_token)]
    )
    yield histogram("queue_time_seconds", "Histogram of queueing time in seconds.", [(rank, counts.queue_time)])
    yield Family(
        "startup_time_seconds",
        "gauge",
        "Engine startup duration by phase in seconds.",
        [(request | {"phase": phase}, settings.load_s) for phase in ("load_weight", "scheduler_e2e", "tokenizer_e2e")],
    )


def _old_families(server: SimulatedServer) -> Iterable[Family]:
    """What SGLang 0.4.6 exported: one label, retractions as a gauge, no live token counter."""
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
