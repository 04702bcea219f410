"""A sweep for programs: what `sweep --json` prints, documented in docs/cli.md."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from backend.forecast.concurrency import ConcurrencyOption
from backend.report.sweep import SweepView
from backend.sweeps import Sweep


def to_dict(view: SweepView) -> dict[str, Any]:
    """For programs; docs/cli.md documents the fields."""
    sweep, curve, found = view.sweep, view.curve, view.recommendation
    return {
        "sweep": None if sweep is None else _sweep_dict(sweep),
        "curve": None if curve is None else [list(point) for point in curve.points],
        "curve_of_sweep": None if curve is None else curve.sweep.id,
        "efficiency": None if curve is None else curve.efficiency,
        "efficiency_is_assumed": bool(curve and curve.efficiency_is_assumed),
        "replicas": view.replicas,
        "concurrency": view.concurrency,
        "knee": view.knee,
        "recommended": None if found is None else found.concurrency,
        "fits": None if found is None else found.fits,
        "options": [] if found is None else [_option_dict(option) for option in found.options],
    }


def _sweep_dict(sweep: Sweep) -> dict[str, Any]:
    told = asdict(sweep)
    told["levels"] = [{**asdict(one), "tokens_per_s_a_request": one.tokens_per_s_a_request} for one in sweep.levels]
    return told


def _option_dict(option: ConcurrencyOption) -> dict[str, Any]:
    r = option.remaining
    return {"concurrency": option.concurrency, "p10_s": r.p10, "p50_s": r.p50, "p90_s": r.p90}
