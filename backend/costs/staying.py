"""What staying on the box costs: rented by the GPU-hour, or owned: energy by the kWh, and amortisation where it is given."""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal
from typing import Final

from backend.forecast.calibrate import Range

HOUR_S: Final = 3600


@dataclass(frozen=True, slots=True)
class UsdRange:
    """An 80 % range of US dollars."""

    p10: Decimal
    p50: Decimal
    p90: Decimal

    def __add__(self, other: UsdRange) -> UsdRange:
        """The ends of two sums that go up and down together; of others the true range is narrower."""
        return UsdRange(self.p10 + other.p10, self.p50 + other.p50, self.p90 + other.p90)


@dataclass(frozen=True, slots=True)
class Box:
    """What is known of the box's cost. None is unknown. A price by the GPU-hour outranks the others: it holds all."""

    gpus: int | None = None  # that are paid for
    gpu_hour_usd: Decimal | None = None
    power_w: float | None = None  # of all its GPUs together, as measured; host and cooling are not in it
    kwh_usd: Decimal | None = None
    amortisation_usd_per_hour: Decimal | None = None

    @property
    def usd_per_hour(self) -> Decimal | None:
        """None where no price is given, or what it is for (GPUs, energy) is not known."""
        if self.gpu_hour_usd is not None:
            return None if self.gpus is None else self.gpus * self.gpu_hour_usd
        if self.kwh_usd is None:
            return self.amortisation_usd_per_hour
        if self.power_w is None:
            return None
        energy = Decimal(repr(self.power_w)) / 1000 * self.kwh_usd
        return energy + (self.amortisation_usd_per_hour or Decimal(0))

    def cost(self, seconds: float) -> Decimal | None:
        """What so long costs."""
        rate = self.usd_per_hour
        return None if rate is None else rate * Decimal(repr(max(seconds, 0.0))) / HOUR_S

    def cost_until(self, seconds: Range | None) -> UsdRange | None:
        """What staying costs until the p10, p50 and p90 of a forecast."""
        if seconds is None:
            return None
        p10, p50, p90 = self.cost(seconds.p10), self.cost(seconds.p50), self.cost(seconds.p90)
        return None if p10 is None or p50 is None or p90 is None else UsdRange(p10, p50, p90)


def break_even_gpu_hour_usd(api_usd: Decimal | None, gpus: int | None, seconds: float | None) -> Decimal | None:
    """The price of a GPU-hour at which staying for `seconds` costs what the API does; dearer GPUs make the API pay."""
    if api_usd is None or not gpus or not seconds or seconds <= 0:
        return None
    return api_usd * HOUR_S / (gpus * Decimal(repr(seconds)))
