"""PURE: the GPUs and the host as rows of present values and as charts. What a device does not tell is None, shown as "–"."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, tzinfo
from typing import Any, Final

import plotly.graph_objects as go

from backend.report.charts import Line, Panel, small_multiples, time_series
from backend.report.formatting import DASH, number, plural
from backend.telemetry_store import Series

GIB: Final = float(1 << 30)
FIELDS: Final = (
    "index", "utilization_percent", "memory_used_bytes", "memory_total_bytes", "power_w", "power_limit_w", "temperature_c",
    "sm_clock_mhz",
)  # fmt: skip
HOST_FIELDS: Final = ("cpu_percent", "memory_used_bytes", "memory_total_bytes", "disk_free_bytes", "disk_total_bytes")
_IDLE: Final = frozenset({"idle", "application clocks", "sync boost", "display clocks"})  # clocks held down without harm


@dataclass(frozen=True, slots=True)
class GpuRow:
    """One GPU as it is now; its `name` is as nvidia-smi counts."""

    name: str
    utilization_percent: float | None
    memory_used_gib: float | None
    memory_total_gib: float | None
    power_w: float | None
    power_limit_w: float | None
    temperature_c: float | None
    sm_clock_mhz: float | None
    ecc_errors: float | None
    throttling: str  # in words; "no" where nothing holds the clocks down


def gpu_rows(newest: Mapping[str, Mapping[str, Any]]) -> list[GpuRow]:
    """A row a GPU, in order."""
    return [_row(key, newest[key]) for key in _ordered({key: sample.get("index") for key, sample in newest.items()})]


def gpus_sentence(rows: Sequence[GpuRow]) -> str:
    """How many there are and how hard they work together: "8 GPUs, 93 % busy, drawing 4.9 kW." """
    if not rows:
        return "No GPU is measured now."
    busy = [row.utilization_percent for row in rows if row.utilization_percent is not None]
    power = [row.power_w for row in rows if row.power_w is not None]
    parts = [plural(len(rows), "GPU")]
    if busy:
        parts.append(f"{sum(busy) / len(busy):.0f} % busy")
    if power:
        watts = sum(power)
        parts.append(f"drawing {watts / 1000:.1f} kW" if watts >= 1000 else f"drawing {watts:.0f} W")
    slowed = sum(row.throttling not in ("no", DASH) for row in rows)
    return f"{', '.join(parts)}{f', {slowed} of them slowed down' if slowed else ''}."


def throttle_sentence(reasons: str | None) -> str:
    """NVML's words: what slows the GPU; "no" where nothing does, "–" where it does not tell."""
    if reasons is None:
        return DASH
    slowing = [word for word in reasons.split(",") if word and word not in _IDLE]
    return ", ".join(slowing) if slowing else "no"


def gpu_figures(
    lines: Mapping[str, Series], *, since: float, until: float, zone: tzinfo = UTC, dark: bool = False
) -> list[go.Figure]:
    """Utilisation, memory, power, temperature, clock: each a column of panels, one a GPU, on one scale."""
    if not lines:
        return []
    order = _ordered({key: _last(series, "index") for key, series in lines.items()})
    names = {key: gpu_name(key, _last(lines[key], "index")) for key in order}
    memory = max((_last(s, "memory_total_bytes") or 0.0 for s in lines.values()), default=0.0) / GIB or None
    limit = max((_last(s, "power_limit_w") or 0.0 for s in lines.values()), default=0.0) or None
    clocks = [v for s in lines.values() for v in s.values["sm_clock_mhz"] if v is not None]
    clock = -(-max(map(float, clocks)) // 500) * 500 if clocks else None
    wanted: tuple[tuple[str, str, str, str, float, float | None, float | None], ...] = (
        ("utilization_percent", "Utilisation", "Percent of time busy", "%", 1.0, 100.0, None),
        ("memory_used_bytes", "Memory", _of("GiB in use", memory, "GiB"), "GiB", 1 / GIB, memory, None),
        ("power_w", "Power", _of("Watts", limit, "W, dotted: the limit"), "W", 1.0, limit, limit),
        ("temperature_c", "Temperature", "Degrees Celsius", "°C", 1.0, 100.0, None),
        ("sm_clock_mhz", "Clock", "MHz of the multiprocessors", "MHz", 1.0, clock, None),
    )
    figures = []
    for field, title, subtitle, unit, factor, top, level in wanted:
        panels = [_panel(names[key], lines[key], field, unit, factor) for key in order]
        shape: dict[str, Any] = {"since": since, "until": until, "zone": zone, "dark": dark, "top": top, "level": level}
        figures.append(small_multiples(panels, title=title, subtitle=subtitle, unit=unit, **shape))
    return figures


def host_figures(
    lines: Mapping[str, Series], *, since: float, until: float, zone: tzinfo = UTC, dark: bool = False
) -> list[go.Figure]:
    """CPU, memory and free disk of the machine."""
    series = lines.get("host")
    if series is None:
        return []
    memory = (_last(series, "memory_total_bytes") or 0.0) / GIB or None
    disk = (_last(series, "disk_total_bytes") or 0.0) / GIB or None
    shape: dict[str, Any] = {"since": since, "until": until, "zone": zone, "dark": dark, "height_px": 200}
    wanted = (
        ("cpu_percent", "Processor", "Percent of all cores together", "%", 1.0, 100.0),
        ("memory_used_bytes", "Memory", _of("GiB in use", memory, "GiB"), "GiB", 1 / GIB, memory),
        ("disk_free_bytes", "Disk", _of("GiB free where the run lies", disk, "GiB"), "GiB", 1 / GIB, None),
    )
    return [
        time_series([_line(title, series, field, factor)], title=title, subtitle=subtitle, unit=unit, top=top, **shape)
        for field, title, subtitle, unit, factor, top in wanted
    ]


def gpu_name(key: str, index: float | None) -> str:
    """ "GPU 3"; a MIG slice has its parent's number and an end of its own."""
    number_words = f"GPU {int(index)}" if index is not None else key[:12]
    return f"{number_words} · {key[-6:]}" if key.startswith("MIG-") else number_words


def energy_words(energy_wh: float | None, completion_tokens: int | None) -> str:
    """ "12.4 kWh used; 310 W·h per million completion tokens", as far as it is known."""
    if energy_wh is None:
        return "The energy is not known: no GPU tells its power."
    used = f"{energy_wh / 1000:,.2f} kWh" if energy_wh >= 1000 else f"{energy_wh:,.1f} W·h"
    if not completion_tokens:
        return f"{used} used by the GPUs since the run's start."
    each = energy_wh / completion_tokens * 1e6
    return f"{used} used by the GPUs since the run's start, {each:,.0f} W·h per million finished completion tokens."


def _row(key: str, sample: Mapping[str, Any]) -> GpuRow:
    return GpuRow(
        name=gpu_name(key, sample.get("index")),
        utilization_percent=sample.get("utilization_percent"),
        memory_used_gib=_gib(sample.get("memory_used_bytes")),
        memory_total_gib=_gib(sample.get("memory_total_bytes")),
        power_w=sample.get("power_w"),
        power_limit_w=sample.get("power_limit_w"),
        temperature_c=sample.get("temperature_c"),
        sm_clock_mhz=sample.get("sm_clock_mhz"),
        ecc_errors=sample.get("ecc_errors_uncorrected"),
        throttling=throttle_sentence(sample.get("throttle_reasons")),
    )


def _panel(name: str, series: Series, field: str, unit: str, factor: float) -> Panel:
    line = _line(name, series, field, factor)
    last = next((v for v in reversed(line.values) if v is not None), None)
    return Panel(name, line, f"{number(last)} {unit}")


def _line(name: str, series: Series, field: str, factor: float) -> Line:
    return Line(name, series.at, [None if v is None else float(v) * factor for v in series.values[field]], series.step_s)


def _last(series: Series, field: str) -> float | None:
    return next((float(v) for v in reversed(series.values[field]) if v is not None), None)


def _ordered(indices: Mapping[str, float | None]) -> Sequence[str]:
    return sorted(indices, key=lambda key: (indices[key] is None, indices[key] or 0.0, key))


def _of(words: str, whole: float | None, unit: str) -> str:
    return words if whole is None else f"{words}, of {whole:,.0f} {unit}"


def _gib(value: float | None) -> float | None:
    return None if value is None else value / GIB
