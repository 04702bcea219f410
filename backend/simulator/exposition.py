"""Prometheus' text format: metrics in, the lines of a /metrics page out. Which metrics there are is told in metrics.py."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from backend.simulator.counters import Histogram

Labels = dict[str, str]


@dataclass(frozen=True, slots=True)
class Family:
    """One metric: `kind` is counter, gauge or histogram; rows are (labels, value) or (labels, Histogram)."""

    name: str
    kind: str
    description: str
    rows: list[tuple[Labels, float | Histogram]]


def write_page(families: Iterable[Family], *, underscores: bool, openmetrics: bool) -> str:
    """The whole page; `underscores` spells sglang_ for sglang:. A family without rows is left out."""
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
