"""Telemetry's shapes: what is known of an engine, a GPU, the host and the driver at one moment, and how each field is
rolled up. How they are kept is `telemetry_store.py`'s; who measures them is the job's (`engine_probe.py`, `gpu.py`,
`host.py`). Imports nothing of ours, so the job (which writes) and the report (which reads) share it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Final


class RollUp(StrEnum):
    """What becomes of a field when many rows become one."""

    MEAN = "mean"  # weighted by the samples behind each row
    MAX = "max"
    LAST = "last"  # the newest that is known: counters, limits
    UNION = "union"  # text: each comma-separated word that occurred


def _number(roll_up: RollUp) -> Any:
    return field(default=None, metadata={"roll_up": roll_up, "type": "REAL"})


def _words() -> Any:
    return field(default=None, metadata={"roll_up": RollUp.UNION, "type": "TEXT"})


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineSample:
    """One replica of the engine at one moment. `key` is the replica ("0"). Counters are of the server's present life."""

    key: str
    at: float  # epoch seconds
    answered: float | None = _number(RollUp.MEAN)  # 1 if the server told its load, 0 if not; a mean is a share of time
    running: float | None = _number(RollUp.MEAN)  # requests
    queued: float | None = _number(RollUp.MEAN)  # requests
    prefill_tokens_per_s: float | None = _number(RollUp.MEAN)  # computed, without what the prefix cache gave
    decode_tokens_per_s: float | None = _number(RollUp.MEAN)
    gen_throughput: float | None = _number(RollUp.MEAN)  # tokens/s by SGLang's own gauge; a hung scheduler freezes it
    token_usage: float | None = _number(RollUp.MEAN)  # 0..1 of the KV pool; the fullest rank
    kv_capacity_tokens: float | None = _number(RollUp.LAST)
    max_running_requests: float | None = _number(RollUp.LAST)
    cache_hit_rate: float | None = _number(RollUp.MEAN)  # 0..1 of prompt tokens
    spec_accept_length: float | None = _number(RollUp.MEAN)  # tokens a verify step; None without speculative decoding
    retracted_total: float | None = _number(RollUp.LAST)  # requests
    retracted_per_s: float | None = _number(RollUp.MEAN)
    generated_tokens: float | None = _number(RollUp.LAST)  # live count, moves while requests run
    prefilled_tokens: float | None = _number(RollUp.LAST)  # live count
    heartbeat_age_s: float | None = _number(RollUp.MAX)  # since the scheduler last spoke; old while paused is normal
    first_token_s: float | None = _number(RollUp.MEAN)  # mean time to first token of those that finished since last asked
    queue_time_s: float | None = _number(RollUp.MEAN)  # mean wait before the first prefill, likewise


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuSample:
    """One GPU or MIG slice at one moment. `key` is its UUID. None where the device does not tell."""

    key: str
    at: float  # epoch seconds
    index: float | None = _number(RollUp.LAST)  # NVML's, in PCI order; a slice has its parent's
    utilization_percent: float | None = _number(RollUp.MEAN)
    memory_utilization_percent: float | None = _number(RollUp.MEAN)  # share of time the memory was read or written
    memory_used_bytes: float | None = _number(RollUp.MAX)
    memory_total_bytes: float | None = _number(RollUp.LAST)
    power_w: float | None = _number(RollUp.MEAN)
    power_limit_w: float | None = _number(RollUp.LAST)
    energy_j: float | None = _number(RollUp.LAST)  # counted by the device since its driver was loaded
    temperature_c: float | None = _number(RollUp.MAX)
    sm_clock_mhz: float | None = _number(RollUp.MEAN)
    memory_clock_mhz: float | None = _number(RollUp.MEAN)
    ecc_errors_uncorrected: float | None = _number(RollUp.LAST)  # since the last reset
    throttled: float | None = _number(RollUp.MEAN)  # 1 while heat or power holds the clocks down; a mean is a share of time
    throttle_reasons: str | None = _words()  # "" is none; the words are `gpu.THROTTLE_WORDS`


@dataclass(frozen=True, slots=True, kw_only=True)
class HostSample:
    """The machine and the supervisor's share of it. `key` is "host"."""

    key: str
    at: float  # epoch seconds
    cpu_percent: float | None = _number(RollUp.MEAN)  # 0..100 of all cores together
    load_1m: float | None = _number(RollUp.MEAN)
    memory_used_bytes: float | None = _number(RollUp.MAX)
    memory_total_bytes: float | None = _number(RollUp.LAST)
    disk_free_bytes: float | None = _number(RollUp.LAST)  # of the file system that holds the run
    disk_total_bytes: float | None = _number(RollUp.LAST)
    supervisor_cpu_percent: float | None = _number(RollUp.MEAN)  # 100 is one core
    supervisor_rss_bytes: float | None = _number(RollUp.MAX)


@dataclass(frozen=True, slots=True, kw_only=True)
class DriverSample:
    """What the driver counted itself. `key` is a dataset's name, or "run" for all together."""

    key: str
    at: float  # epoch seconds
    concurrency: float | None = _number(RollUp.LAST)  # slots allowed
    in_flight: float | None = _number(RollUp.MEAN)  # requests
    req_per_s: float | None = _number(RollUp.MEAN)  # samples finished
    useful_tokens_per_s: float | None = _number(RollUp.MEAN)  # completion tokens of finished samples that count
    mean_completion_tokens_recent: float | None = _number(RollUp.LAST)  # of those finished in the last minutes
    mean_completion_tokens: float | None = _number(RollUp.LAST)  # of all finished
    finished_total: float | None = _number(RollUp.LAST)
    rejected_total: float | None = _number(RollUp.LAST)
    retried_total: float | None = _number(RollUp.LAST)
    completion_tokens_total: float | None = _number(RollUp.LAST)
    prompt_tokens_total: float | None = _number(RollUp.LAST)


Sample = EngineSample | GpuSample | HostSample | DriverSample

TABLES: Final[dict[str, type[Sample]]] = {
    "engine_samples": EngineSample,
    "gpu_samples": GpuSample,
    "host_samples": HostSample,
    "driver_samples": DriverSample,
}
