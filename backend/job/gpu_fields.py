"""The questions that NVML answers about one device, each as a function from pynvml and a handle to fields of a GpuSample
in our units. Raises pynvml's NVMLError; `gpu.py` decides what an error means.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

# NVML's numbers for "not with this device, driver or user": argument, not supported, permission, function, version,
# deprecated. (They are part of its ABI; pynvml itself is imported only when a reader opens.)
NOT_HERE: Final = frozenset({2, 3, 4, 13, 25, 26})

# NVML's bit mask of what holds the clocks down; `SLOWING` are those that cost speed under load.
THROTTLE_WORDS: Final = {
    0x1: "idle",
    0x2: "application clocks",
    0x4: "software power cap",
    0x8: "hardware slowdown",
    0x10: "sync boost",
    0x20: "software thermal slowdown",
    0x40: "hardware thermal slowdown",
    0x80: "hardware power brake",
    0x100: "display clocks",
    0x200: "board limit",
    0x400: "reliability",
}
SLOWING: Final = 0x4 | 0x8 | 0x20 | 0x40 | 0x80 | 0x200 | 0x400

Values = Mapping[str, float | str]


@dataclass(frozen=True, slots=True)
class GpuProcess:
    """A process that computes on a GPU. In a container the driver may tell the host's process ids."""

    pid: int
    memory_used_bytes: int | None


def throttle_words(mask: int) -> str:
    """NVML's bit mask in words, comma-separated, "" for none: 0x44 is "software power cap,hardware thermal slowdown"."""
    words = [word for bit, word in THROTTLE_WORDS.items() if mask & bit]
    others = mask & ~sum(THROTTLE_WORDS)
    return ",".join([*words, f"reason {others:#x}"] if others else words)


def _newer_or_older(nvml: Any, newer: Callable[[], Any], older: Callable[[], Any]) -> Any:
    """Asks an older driver the older way; what neither knows raises the older one's error."""
    try:
        return newer()
    except nvml.NVMLError as error:
        if error.value not in NOT_HERE:
            raise
        return older()


def _utilization(nvml: Any, handle: Any) -> Values:
    rates = nvml.nvmlDeviceGetUtilizationRates(handle)
    return {"utilization_percent": rates.gpu, "memory_utilization_percent": rates.memory}


def memory(nvml: Any, handle: Any) -> Values:
    """`memory_used_bytes` and `memory_total_bytes`; empty where the GPU has none of its own."""
    found = _newer_or_older(
        nvml,
        lambda: nvml.nvmlDeviceGetMemoryInfo(handle, version=nvml.nvmlMemory_v2),
        lambda: nvml.nvmlDeviceGetMemoryInfo(handle),
    )
    if not found.total:  # it shares the host's memory
        return {}
    return {"memory_used_bytes": found.used, "memory_total_bytes": found.total}


def _temperature(nvml: Any, handle: Any) -> Values:
    sensor = nvml.NVML_TEMPERATURE_GPU
    return {
        "temperature_c": _newer_or_older(
            nvml,
            lambda: nvml.nvmlDeviceGetTemperatureV(handle, sensor),
            lambda: nvml.nvmlDeviceGetTemperature(handle, sensor),
        )
    }


def _reasons(nvml: Any, handle: Any) -> Values:
    mask = _newer_or_older(
        nvml,
        lambda: nvml.nvmlDeviceGetCurrentClocksEventReasons(handle),
        lambda: nvml.nvmlDeviceGetCurrentClocksThrottleReasons(handle),
    )
    return {"throttled": float(bool(mask & SLOWING)), "throttle_reasons": throttle_words(mask)}


def _ecc(nvml: Any, handle: Any) -> Values:
    kind, since_reset = nvml.NVML_MEMORY_ERROR_TYPE_UNCORRECTED, nvml.NVML_VOLATILE_ECC
    return {"ecc_errors_uncorrected": nvml.nvmlDeviceGetTotalEccErrors(handle, kind, since_reset)}


def processes(nvml: Any, handle: Any) -> tuple[GpuProcess, ...]:
    """Who computes on the device."""
    return tuple(GpuProcess(p.pid, p.usedGpuMemory) for p in nvml.nvmlDeviceGetComputeRunningProcesses(handle))


QUESTIONS: Final[dict[str, Callable[[Any, Any], Values]]] = {
    "memory": memory,
    "utilization": _utilization,
    "power": lambda nvml, handle: {"power_w": nvml.nvmlDeviceGetPowerUsage(handle) / 1000},
    "power_limit": lambda nvml, handle: {"power_limit_w": nvml.nvmlDeviceGetEnforcedPowerLimit(handle) / 1000},
    "energy": lambda nvml, handle: {"energy_j": nvml.nvmlDeviceGetTotalEnergyConsumption(handle) / 1000},
    "temperature": _temperature,
    "sm_clock": lambda nvml, handle: {"sm_clock_mhz": nvml.nvmlDeviceGetClockInfo(handle, nvml.NVML_CLOCK_SM)},
    "memory_clock": lambda nvml, handle: {"memory_clock_mhz": nvml.nvmlDeviceGetClockInfo(handle, nvml.NVML_CLOCK_MEM)},
    "reasons": _reasons,
    "ecc": _ecc,
}
