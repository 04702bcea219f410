"""What a paid API charges: the price of usage, and its own bill over everything that was generated, asked for or broken off."""

from __future__ import annotations

from dataclasses import dataclass, field
from decimal import Decimal

from backend.simulator.engine import Generation
from backend.simulator.settings import Prices, Settings


@dataclass(frozen=True, slots=True)
class Charge:
    """One generation on the bill."""

    prompt_tokens: int
    cached_tokens: int
    completion_tokens: int
    usd: Decimal


@dataclass(slots=True)
class Bill:
    """Every generation once, by the id that its answer tells; added when it ends, however it ends."""

    settings: Settings
    charges: dict[str, Charge] = field(default_factory=dict)

    def watch(self, generation: Generation) -> None:
        """Charges the generation when it is done."""
        generation.done.add_done_callback(lambda _: self._charge(generation))

    @property
    def usd(self) -> Decimal:
        """The sum."""
        return sum((charge.usd for charge in self.charges.values()), Decimal(0))

    def _charge(self, generation: Generation) -> None:
        sequence = generation.sequence
        usd = cost_usd(self.settings.prices, sequence.prompt_tokens, sequence.cached_tokens, sequence.generated)
        self.charges[sequence.rid] = Charge(sequence.prompt_tokens, sequence.cached_tokens, sequence.generated, usd)


def cost_usd(prices: Prices, prompt_tokens: int, cached_tokens: int, completion_tokens: int) -> Decimal:
    """What a request costs: cached prompt tokens at their own price, once."""
    cached_price = prices.input_usd_per_mtok if prices.cached_usd_per_mtok is None else prices.cached_usd_per_mtok
    total = (prompt_tokens - cached_tokens) * Decimal(str(prices.input_usd_per_mtok))
    total += cached_tokens * Decimal(str(cached_price))
    total += completion_tokens * Decimal(str(prices.output_usd_per_mtok))
    return total / 1_000_000
