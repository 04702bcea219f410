"""Runs and APIs to compare, built from few words."""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal
from typing import Any

from backend.costs.case import Api, Case, Texts
from backend.costs.limits import ApiLimits, StreamSpeed
from backend.costs.prices import Price, Prices
from backend.costs.staying import Box
from backend.forecast.observation import BudgetStop, DatasetNow
from tests.forecast.made_observation import dataset, observation

RENTED = Box(gpus=4, gpu_hour_usd=Decimal("1.0"))


def priced(input_per_mtok: str = "0.1", output_per_mtok: str = "1.43") -> Prices:
    return Prices(input_per_mtok=Price(Decimal(input_per_mtok), "x"), output_per_mtok=Price(Decimal(output_per_mtok), "x"))


def api(name: str = "fallback", *, prices: Prices | None = None, streams: int = 600, speed: float = 50.0, **more: Any) -> Api:
    """600 answers at once at 50 tokens/s, known to 20 %, unless told otherwise; `rpm` and `tpm` are limits."""
    limits = ApiLimits(streams, more.pop("rpm", None), more.pop("tpm", None))
    return Api(name, "m", prices or priced(), limits, StreamSpeed(speed, more.pop("log_sd", 0.2), 1.0), **more)


def case(
    datasets: Sequence[DatasetNow] | None = None, box: Box = RENTED, prompt_tokens: float | None = 200.0, **more: Any
) -> Case:
    """A runs, B and C wait; C has 200 prompts only. Budgets are reserved, as the supervisor does."""
    chosen = datasets or (dataset("A"), dataset("B", state="waiting"), dataset("C", state="waiting", prompts=200))
    now = observation(chosen, budget_stop=BudgetStop.RESERVE, overlap=True, **more)
    return Case(now, box, Texts(dict.fromkeys([d.name for d in chosen], prompt_tokens)))
